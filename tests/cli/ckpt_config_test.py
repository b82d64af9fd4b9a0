#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quadrille ckpt convert with a config.json beside the weights: what it says goes into the note, what this library does
not compute is refused by key and value, and --to gpt2 writes one.

usage: ckpt_config_test.py QUADRILLE
"""
import json
import os

import ckpt_case
from ckpt_case import SEED, Case, ckpt, read_bytes
from ckpt_files import gpt2, llama, read

# The tensors of ckpt_files.gpt2(hidden=12).
SIZES = {"n_layer": 2, "n_embd": 12, "n_head": 3, "n_positions": 5, "vocab_size": 11}
CONFIG = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **SIZES, "activation_function": "gelu_new",
          "layer_norm_epsilon": 1e-5, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
NOTE = {"network": "gpt2", "layers": 2, "hidden": 12, "heads": 3, "ffn": 48, "epsilon": 1e-5}
# As transformers 5 writes it, but for sizes.
WHOLE = CONFIG | {
    "add_cross_attention": False, "bos_token_id": 50256, "dtype": "float32", "eos_token_id": [1, 2],
    "initializer_range": 0.02, "n_inner": None, "pad_token_id": None, "reorder_and_upcast_attn": True,
    "attn_pdrop": 0.1, "rope_scaling": None, "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True,
    "summary_activation": None, "summary_first_dropout": 0.1, "summary_proj_to_labels": True,
    "summary_type": "cls_index", "summary_use_proj": True, "tie_word_embeddings": True, "torch_dtype": "float32",
    "transformers_version": "5.24.0", "use_cache": True, "pruned_heads": {}}


def other_head(theirs):
    kind, shape, data = theirs["wte.weight"]
    return {**theirs, "lm_head.weight": (kind, shape, bytes([data[0] ^ 1]) + data[1:])}


class Config(Case):
    def setUp(self):
        super().setUp()
        self.theirs, self.ours = gpt2(SEED, hidden=12)
        os.mkdir(self.path("hf"))
        self.model = self.file("hf/model.safetensors", self.theirs)

    def config(self, content, name="hf/config.json"):
        return self.path(name, json.dumps(content).encode())

    def note(self, name="out.safetensors"):
        return json.loads(read(self.path(name))[1]["note"])

    def refuse(self, says, *words, source="hf"):
        self.bad(2, "convert", self.path(source), self.path("out.safetensors"), *words, says=says)
        self.assertFalse(os.path.exists(self.path("out.safetensors")))

    def test_what_it_says(self):
        """A folder and a file beside it; the same with --from."""
        for words in [], ["--from", "gpt2"]:
            for source in "hf", "hf/model.safetensors":
                self.config(CONFIG)
                said = self.good("convert", self.path(source), self.path("out.safetensors"), *words)
                self.assertEqual(len(said.splitlines()), 1, said)
                found, metadata = read(self.path("out.safetensors"))
                self.assertEqual(found, self.ours)
                self.assertEqual((json.loads(metadata["note"]), metadata["prefix"]), (NOTE, ""))
        self.config(WHOLE)
        said = self.good("convert", self.path("hf"), self.path("out.safetensors"))
        self.assertIn("not applied here: reorder_and_upcast_attn true, attn_pdrop 0.1\n", said)
        self.assertEqual(self.note(), NOTE)
        for key, value in (("layer_norm_epsilon", 0.3), ("layer_norm_epsilon", 0.1 + 0.2),
                           ("activation_function", "gelu_pytorch_tanh"), ("n_inner", 48)):
            self.config(CONFIG | {key: value})
            self.good("convert", self.path("hf"), self.path("out.safetensors"))
            self.assertEqual(self.note(), NOTE | ({"epsilon": value} if "epsilon" in key else {}))

    def test_several_files(self):
        os.mkdir(self.path("parts"))
        self.good("convert", self.model, self.path("parts/model.safetensors"), "--max-size", "1K")
        self.assertFalse(os.path.exists(self.path("parts/model.safetensors")))
        self.config(CONFIG, "parts/config.json")
        for source in "parts", "parts/model.safetensors.index.json":
            self.good("convert", self.path(source), self.path("out.safetensors"))
            self.assertEqual((read(self.path("out.safetensors"))[0], self.note()), (self.ours, NOTE))

    def test_what_is_not_computed(self):
        for key, value in (
                ("activation_function", "relu"), ("activation_function", "gelu"), ("activation_function", "gelu_fast"),
                ("activation_function", "quick_gelu"), ("activation_function", None), ("scale_attn_weights", False),
                ("scale_attn_by_inverse_layer_idx", True), ("add_cross_attention", True), ("is_encoder_decoder", True),
                ("scale_attn_weights", 1), ("layer_norm_epsilon", 0), ("layer_norm_epsilon", "1e-5"), ("n_head", 5),
                ("n_head", 0), ("n_head", "3"), ("n_head", None), ("n_head", 2**40), ("n_inner", 24), ("n_embd", 24),
                ("n_layer", 3), ("n_layer", 1), ("n_positions", 6), ("vocab_size", 12), ("hidden_size", 24),
                ("rotary_dim", 4), ("multi_query", True), ("auto_map", {"AutoModel": "x.Y"}),
                ("pruned_heads", {"0": [1]}), ("quantization_config", {"bits": 4}), ("attn_pdrop", "a"),
                ("architectures", ["GPT2ForSequenceClassification"]), ("architectures", ["GPT2Model"]),
                ("architectures", ["GPT2DoubleHeadsModel"]), ("architectures", [""]),
                ("tie_word_embeddings", False), ("tie_word_embeddings", "no"), ("model_type", "gpt_bigcode"),
                ("model_type", None), ("model_type", "llama")):
            with self.subTest(key=key, value=value):
                self.config(CONFIG | {key: value})
                said = value[0] if isinstance(value, list) else value
                shown = isinstance(said, (str, int, float)) and key not in ("model_type", "tie_word_embeddings")
                says = [str(said).lower() if isinstance(said, bool) else str(said)] if shown else []
                self.refuse(["hf/config.json", key, *says], "--from", "gpt2")

    def test_what_is_absent(self):
        """It means the default of transformers' class, and that is told."""
        dropouts = [key for key in CONFIG if "pdrop" in key]
        self.config({key: value for key, value in CONFIG.items() if key not in dropouts})
        said = self.good("convert", self.path("hf"), self.path("out.safetensors"))
        self.assertIn("not applied here: attn_pdrop 0.1, embd_pdrop 0.1, resid_pdrop 0.1\n", said)
        lacking = {key: value for key, value in CONFIG.items() if key not in ("n_head", "layer_norm_epsilon")}
        self.config(lacking)
        said = self.good("convert", self.path("hf"), self.path("out.safetensors"))
        self.assertIn("config.json does not say what means, by default, n_head 12, layer_norm_epsilon 1e-05\n", said)
        self.assertEqual(self.note(), NOTE | {"heads": 12})
        self.config({"model_type": "gpt2"})
        os.remove(self.path("out.safetensors"))
        self.refuse(["n_layer is 12, but it is 2 by the tensors"])

    def test_keys_by_other_names(self):
        others = {"n_layer": "num_hidden_layers", "n_embd": "hidden_size", "n_head": "num_attention_heads",
                  "n_positions": "max_position_embeddings"}
        self.config({others.get(key, key): value for key, value in CONFIG.items()})
        self.good("convert", self.path("hf"), self.path("out.safetensors"))
        self.assertEqual(self.note(), NOTE)
        self.config(CONFIG | {"num_attention_heads": 3})
        self.good("convert", self.path("hf"), self.path("out.safetensors"))
        os.remove(self.path("out.safetensors"))
        self.config(CONFIG | {"num_attention_heads": 4})
        self.refuse(["num_attention_heads is 4"])

    def test_files_that_are_no_config(self):
        for content, says in ((b"{", "line 1"), (b"[]", "model_type"), (b'{"n_head": 3, "n_head": 4}', "n_head"),
                              (b"{}", "model_type is missing")):
            self.path("hf/config.json", content)
            self.refuse(["config.json", says])
        os.remove(self.path("hf/model.safetensors"))
        self.refuse(["hf is a folder"])

    def test_without_one(self):
        said = self.good("convert", self.path("hf"), self.path("out.safetensors"), "--from", "gpt2")
        self.assertIn("no config.json lies beside", said)
        self.assertIn("--heads", said)
        self.assertNotIn("note", read(self.path("out.safetensors"))[1])

    def test_names_that_are_not_its(self):
        """A file of ours, or of a network nobody knows, in such a folder."""
        self.config(CONFIG)
        ours = self.file("hf/run.safetensors", self.ours, {"note": "{}"})
        found, metadata = self.convert(ours, "out.safetensors")
        self.assertEqual((found, metadata["note"]), (self.ours, "{}"))
        self.config({"model_type": "bert"})
        self.assertEqual(self.convert(self.model, "out.safetensors")[0], self.theirs)
        os.remove(self.path("out.safetensors"))
        self.refuse(["model_type is bert", "--from MAP.json"])
        self.refuse(["model_type is bert"], "--from", "gpt2", source="hf/model.safetensors")

    def test_heads_that_are_tied_or_not(self):
        equal = {**self.theirs, "lm_head.weight": self.theirs["wte.weight"]}
        own = {"head.weight": self.theirs["wte.weight"]}
        for tensors, tie, expected in ((equal, True, self.ours), (equal, False, {**self.ours, **own}),
                                       (equal, None, self.ours)):
            self.file("hf/model.safetensors", tensors)
            self.config(CONFIG | ({} if tie is None else {"tie_word_embeddings": tie}))
            said = self.good("convert", self.path("hf"), self.path("out.safetensors"))
            self.assertEqual("elements: lm_head.weight" in said, tie is not False)
            self.assertEqual(read(self.path("out.safetensors"))[0], expected)
        os.remove(self.path("out.safetensors"))
        self.file("hf/model.safetensors", other_head(self.theirs))
        self.config(CONFIG)
        self.refuse(["tie_word_embeddings is true", "lm_head.weight"])

    def test_what_is_left_out_is_named(self):
        more = {f"h.{i}.attn.bias": ("U8", [1], b"\1") for i in range(2)}
        self.file("hf/model.safetensors", {**self.theirs, **more})
        self.config(CONFIG)
        said = self.good("convert", self.path("hf"), self.path("out.safetensors"))
        self.assertIn("left out, as the map says: h.0.attn.bias, h.1.attn.bias\n", said)

    def test_llama(self):
        theirs, ours = llama(SEED)
        self.file("hf/model.safetensors", theirs)
        config = {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "rope_theta": 5e5}
        self.config(config)
        self.good("convert", self.path("hf"), self.path("out.safetensors"))
        self.assertEqual(read(self.path("out.safetensors"))[0], ours)
        self.assertEqual(self.note(), {"network": "mistral", "config": config})
        del theirs["lm_head.weight"]
        self.file("hf/model.safetensors", theirs)
        os.remove(self.path("out.safetensors"))
        self.refuse(["tie_word_embeddings is false", "lm_head.weight"])

    def test_back(self):
        """The config.json of --to gpt2 is that of the note; one that is there stays, or is refused."""
        self.config(CONFIG | {"layer_norm_epsilon": 0.25})
        self.file("hf/model.safetensors", other_head(self.theirs))
        self.config(CONFIG | {"tie_word_embeddings": False, "layer_norm_epsilon": 0.25})
        self.good("convert", self.path("hf"), self.path("out.safetensors"), "--dtype", "bf16")
        os.mkdir(self.path("back"))
        back = self.path("back/model.safetensors")
        self.assertIn("config.json", self.good("convert", self.path("out.safetensors"), back, "--to", "gpt2"))
        written = json.loads(read_bytes(self.path("back/config.json")))
        for key, value in {**SIZES, "n_inner": 48, "layer_norm_epsilon": 0.25, "tie_word_embeddings": False,
                           "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "torch_dtype": "bfloat16",
                           "activation_function": "gelu_new", "attn_pdrop": 0, "scale_attn_weights": True}.items():
            self.assertEqual(written[key], value, key)
        self.good("convert", self.path("back"), self.path("again.safetensors"))
        self.assertEqual(read(self.path("again.safetensors"))[0], read(self.path("out.safetensors"))[0])
        self.assertEqual(self.note("again.safetensors"), self.note())
        kept = json.dumps(written | {"eos_token_id": 7}).encode()
        self.path("back/config.json", kept)
        self.good("convert", self.path("out.safetensors"), back, "--to", "gpt2")
        self.assertEqual(read_bytes(self.path("back/config.json")), kept)
        before = read_bytes(back)
        for key, value in (("n_head", 2), ("layer_norm_epsilon", 1e-5), ("tie_word_embeddings", True), ("n_layer", 3),
                           ("torch_dtype", "float32"), ("dtype", "float32"),
                           ("scale_attn_weights", False), ("model_type", "llama")):
            kept = self.config(written | {key: value}, "back/config.json")
            self.bad(2, "convert", self.path("out.safetensors"), back, "--to", "gpt2", says=["back/config.json", key])
            self.assertEqual((json.loads(read_bytes(kept))[key], read_bytes(back)), (value, before))

    def test_back_without_heads(self):
        source = self.file("a.safetensors", self.ours)
        said = self.good("convert", source, self.path("b.safetensors"), "--to", "gpt2")
        self.assertIn("no config.json is written", said)
        self.assertFalse(os.path.exists(self.path("config.json")))

    def test_from_gpt2_to_gpt2(self):
        self.config(CONFIG)
        self.good("convert", self.path("hf"), self.path("b.safetensors"), "--to", "gpt2", "--dtype", "f64")
        self.assertEqual(set(read(self.path("b.safetensors"))[0]), set(self.theirs))
        self.assertEqual(json.loads(read_bytes(self.path("config.json")))["n_head"], 3)
        self.assertEqual(ckpt("convert", self.path("b.safetensors"), self.path("c.safetensors")).returncode, 0)
        self.assertEqual(self.note("c.safetensors"), NOTE)


if __name__ == "__main__":
    ckpt_case.main()
