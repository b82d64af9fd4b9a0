#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quadrille ckpt convert with a config.json of a GPT-2 beside the weights: it goes into the note, what this library
does not compute is refused by key and value, and --to gpt2 writes one, also from older notes.

usage: ckpt_config_test.py QUADRILLE
"""
import json
import os

import ckpt_case
from ckpt_case import SEED, Case, ckpt, read_bytes
from ckpt_files import gpt2, read

# The tensors of ckpt_files.gpt2(hidden=12).
SIZES = {"n_layer": 2, "n_embd": 12, "n_head": 3, "n_positions": 5, "vocab_size": 11}
CONFIG = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **SIZES, "activation_function": "gelu_new",
          "layer_norm_epsilon": 1e-5, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
OLDER_NOTE = {"network": "gpt2", "layers": 2, "hidden": 12, "heads": 3, "ffn": 48, "epsilon": 1e-5}
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
        """The config.json in it."""
        note = json.loads(read(self.path(name))[1]["note"])
        self.assertEqual(list(note), ["network", "config"])
        return note["config"]

    def refuse(self, says, *words, source="hf"):
        self.bad(2, "convert", self.path(source), self.path("out.safetensors"), *words, says=says)
        self.assertFalse(os.path.exists(self.path("out.safetensors")))

    def test_what_it_says(self):
        """A folder and a file beside it; the same with --from."""
        for words in [], ["--from", "gpt2"]:
            for source in "hf", "hf/model.safetensors":
                self.config(CONFIG)
                said = self.good("convert", self.path(source), self.path("out.safetensors"), *words)
                self.assertIn("gpt2 with 2 layers, 12 features, 3 heads of 4, epsilon 1e-05\n", said)
                found, metadata = read(self.path("out.safetensors"))
                self.assertEqual(found, self.ours)
                self.assertEqual((self.note(), metadata["prefix"]), (CONFIG, ""))
        for more in (WHOLE, {"layer_norm_epsilon": 0.3}, {"layer_norm_epsilon": 0.1 + 0.2}, {"n_inner": 48},
                     {"activation_function": "gelu_pytorch_tanh"}, {"activation_function": "relu"},
                     {"activation_function": "gelu"}, {"scale_attn_weights": False}):
            self.config(CONFIG | more)
            self.good("convert", self.path("hf"), self.path("out.safetensors"))
            self.assertEqual(self.note(), CONFIG | more)

    def test_several_files(self):
        os.mkdir(self.path("parts"))
        self.good("convert", self.model, self.path("parts/model.safetensors"), "--max-size", "1K")
        self.assertFalse(os.path.exists(self.path("parts/model.safetensors")))
        self.config(CONFIG, "parts/config.json")
        for source in "parts", "parts/model.safetensors.index.json":
            self.good("convert", self.path(source), self.path("out.safetensors"))
            self.assertEqual((read(self.path("out.safetensors"))[0], self.note()), (self.ours, CONFIG))

    def test_what_is_not_computed(self):
        for key, value in (
                ("activation_function", "quick_gelu"), ("activation_function", None), ("scale_attn_weights", 1),
                ("scale_attn_by_inverse_layer_idx", True), ("add_cross_attention", True), ("is_encoder_decoder", True),
                ("layer_norm_epsilon", 0), ("layer_norm_epsilon", "1e-5"), ("n_head", 5),
                ("n_head", 0), ("n_head", "3"), ("n_head", None), ("n_head", 2**40), ("num_attention_heads", 4),
                ("rotary_dim", 4), ("multi_query", True), ("pruned_heads", {"0": [1]}),
                ("quantization_config", {"bits": 4}), ("attn_pdrop", "a"),
                ("architectures", ["GPT2ForSequenceClassification"]), ("architectures", ["GPT2Model"]),
                ("architectures", ["GPT2DoubleHeadsModel"]), ("architectures", [""]),
                ("tie_word_embeddings", "no"), ("model_type", "gpt_bigcode"), ("model_type", None),
                ("model_type", "llama")):
            with self.subTest(key=key, value=value):
                self.config(CONFIG | {key: value})
                said = value[0] if isinstance(value, list) else value
                shown = isinstance(said, (str, int, float)) and key != "model_type"
                says = [str(said).lower() if isinstance(said, bool) else str(said)] if shown else []
                self.refuse(["hf/config.json", key, *says], "--from", "gpt2")

    def test_other_sizes(self):
        for key, value, says in (
                ("n_inner", 24, ["block0.fc.weight is [48, 12], but [24, 12] by"]), ("n_layer", 1, ["has block1."]),
                ("n_embd", 24, ["embedding.weight is [11, 12], but [11, 24] by"]), ("n_layer", 3, ["lacks block2."]),
                ("hidden_size", 24, ["hidden_size", "24", "n_embd", "12"]),
                ("n_positions", 6, ["embedding.positions is [5, 12], but [6, 12] by"]),
                ("vocab_size", 12, ["embedding.weight is [11, 12], but [12, 12] by"]),
                ("tie_word_embeddings", False, ["lacks head.weight [11, 12]", "tie_word_embeddings is false"])):
            self.config(CONFIG | {key: value})
            self.refuse(["hf/config.json", *says])

    def test_what_is_absent(self):
        """It means the default of transformers' class."""
        self.config({key: value for key, value in CONFIG.items() if key not in ("n_head", "layer_norm_epsilon")})
        said = self.good("convert", self.path("hf"), self.path("out.safetensors"))
        self.assertIn("12 heads of 1, epsilon 1e-05\n", said)
        self.config({"model_type": "gpt2"})
        os.remove(self.path("out.safetensors"))
        self.refuse(["embedding.weight is [11, 12], but [50257, 768] by"])

    def test_keys_by_other_names(self):
        others = {"n_layer": "num_hidden_layers", "n_embd": "hidden_size", "n_head": "num_attention_heads",
                  "n_positions": "max_position_embeddings"}
        for config in {others.get(key, key): value for key, value in CONFIG.items()}, CONFIG | {"hidden_size": 12}:
            self.config(config)
            self.good("convert", self.path("hf"), self.path("out.safetensors"))
            self.assertEqual(self.note(), config)

    def test_files_that_are_no_config(self):
        for content, says in ((b"{", "line 1"), (b"[]", "a list"), (b'{"n_head": 3, "n_head": 4}', "n_head"),
                              (b"{}", "'model_type' is missing")):
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
        self.refuse(["bert", "known are cohere2"])
        self.refuse(["bert"], "--from", "gpt2", source="hf/model.safetensors")

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
        self.refuse(["tie_word_embeddings is true", "head.weight"])

    def test_what_is_left_out_is_named(self):
        more = {f"h.{i}.attn.bias": ("U8", [1], b"\1") for i in range(2)}
        self.file("hf/model.safetensors", {**self.theirs, **more})
        self.config(CONFIG)
        said = self.good("convert", self.path("hf"), self.path("out.safetensors"))
        self.assertIn("left out, as the map says: h.0.attn.bias, h.1.attn.bias\n", said)

    def test_back(self):
        """The config.json of --to gpt2 is that of the note; one that is there stays, or is refused."""
        self.file("hf/model.safetensors", other_head(self.theirs))
        config = WHOLE | {"tie_word_embeddings": False, "layer_norm_epsilon": 0.1}
        self.config(config)
        self.good("convert", self.path("hf"), self.path("out.safetensors"), "--dtype", "bf16")
        os.mkdir(self.path("back"))
        back = self.path("back/model.safetensors")
        self.assertIn("config.json", self.good("convert", self.path("out.safetensors"), back, "--to", "gpt2"))
        written = json.loads(read_bytes(self.path("back/config.json")))
        self.assertEqual(written, config | {"dtype": "bfloat16", "torch_dtype": "bfloat16"})
        self.good("convert", self.path("back"), self.path("again.safetensors"))
        self.assertEqual(read(self.path("again.safetensors"))[0], read(self.path("out.safetensors"))[0])
        kept = json.dumps(written | {"eos_token_id": 7}).encode()
        self.path("back/config.json", kept)
        self.good("convert", self.path("out.safetensors"), back, "--to", "gpt2")
        self.assertEqual(read_bytes(self.path("back/config.json")), kept)
        before = read_bytes(back)
        for key, value, says in (("n_head", 2, "heads is 2, not 3"), ("layer_norm_epsilon", 1e-5, "norm_epsilon is"),
                                 ("tie_word_embeddings", True, "tied is"), ("n_layer", 3, "layers is 3, not 2"),
                                 ("torch_dtype", "float32", "its torch_dtype is float32, not bfloat16"),
                                 ("dtype", "float32", "its dtype is float32, not bfloat16"),
                                 ("scale_attn_weights", False, "attention_scale"), ("model_type", "llama", "llama")):
            kept = self.config(written | {key: value}, "back/config.json")
            self.bad(2, "convert", self.path("out.safetensors"), back, "--to", "gpt2", says=["back/config.json", says])
            self.assertEqual((json.loads(read_bytes(kept))[key], read_bytes(back)), (value, before))

    def test_back_from_other_notes(self):
        """Those of runs: heads and epsilon of a GPT-2, or a network as this library writes it."""
        sizes = {"n_layer": 2, "n_embd": 12, "n_head": 3, "n_positions": 5, "vocab_size": 11, "n_inner": 48,
                 "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "tie_word_embeddings": True,
                 "scale_attn_weights": True, "attn_pdrop": 0, "torch_dtype": "float32",
                 "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}
        own = {"name": "gpt2", "architecture": "gpt2", "activation": "gelu_new", "layers": 2, "hidden": 12, "heads": 3,
               "kv_heads": 3, "head_size": 4, "ffn": 48, "vocab": 11, "context": 5, "positions": 5, "window": 0,
               "window_layers": 0, "gated": False, "qkv_bias": True, "out_bias": True, "mlp_bias": True,
               "norm": "layer", "norms_per_layer": 2, "tied": True, "parallel_residual": False}
        for note, changes in ((OLDER_NOTE, {}), ({"step": 7, "heads": 4, "epsilon": 0.25},
                                                 {"n_head": 4, "layer_norm_epsilon": 0.25}),
                              ({"heads": 2}, {"n_head": 2}), ({"config": own}, {}),
                              ({"config": own | {"norm_epsilon": 0.1, "attention_scale": 1.0, "activation": "relu"}},
                               {"layer_norm_epsilon": 0.1, "scale_attn_weights": False, "activation_function": "relu"}),
                              ({"config": own | {"positions": 9, "context": 9}}, {}),
                              ({"config": CONFIG | {"n_positions": 9}}, None)):
            source = self.file("run.safetensors", self.ours, {"note": json.dumps(note)})
            self.good("convert", source, self.path("back.safetensors"), "--to", "gpt2")
            written = json.loads(read_bytes(self.path("config.json")))
            expected = CONFIG | {"torch_dtype": "float32"} if changes is None else sizes | changes
            self.assertEqual({key: written[key] for key in expected}, expected, note)
            os.remove(self.path("config.json"))
        for note, says in (({"config": own | {"norm_one_plus": True}}, "norm_one_plus"), ({"heads": 5}, "5"),
                           ({"config": own | {"architecture": "own"}}, "none of transformers")):
            source = self.file("run.safetensors", self.ours, {"note": json.dumps(note)})
            said = self.good("convert", source, self.path("back.safetensors"), "--to", "gpt2")
            self.assertRegex(said, rf"no config.json is written: .*{says}")
            self.assertFalse(os.path.exists(self.path("config.json")))

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
        self.assertEqual(self.note("c.safetensors"), CONFIG | {"torch_dtype": "float64"})


if __name__ == "__main__":
    ckpt_case.main()
