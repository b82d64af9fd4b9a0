#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quadrille ckpt convert of models of Hugging Face's transformers, all kinds of networks: there and back bit for bit,
with logits on grids that are those of transformers, and what is refused.

usage: ckpt_networks_test.py QUADRILLE TEST_MODELS FOLDER-OF-NETWORKS

TEST_MODELS writes the models, and compares converted ones with expected.json.
"""
import json
import os
import random
import resource
import shutil

import cases
from cases import ARGUMENTS, start
import ckpt_case
from ckpt_case import SEED, Case, ckpt, read_bytes
from ckpt_files import BYTES, count, joined, read, transposed, write

GRIDS = ["1x3x1x2", "2x2x2x1"]
MAPS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../perfmodel/checkpoints")
MOST_MEMORY = 40 << 20  # less than a matrix of test_large_matrices


def networks():
    return sorted(name for name in os.listdir(ARGUMENTS.networks)
                  if os.path.isdir(os.path.join(ARGUMENTS.networks, name)))


class Networks(Case):
    def models(self, *words):
        return start(ARGUMENTS.models, *words, environment={"QDR_TEST_NETWORKS": ARGUMENTS.networks})

    def make(self, *names):
        """Folders as transformers saves them."""
        for name in names:
            self.path(f"{name}/config.json", read_bytes(os.path.join(ARGUMENTS.networks, name, "config.json")))
        done = self.models("--write", self.folder, *names)
        self.assertEqual(done.returncode, 0, done.stderr)

    def config(self, name):
        return json.loads(read_bytes(self.path(f"{name}/config.json")))

    def refuse(self, says, source, *words):
        self.bad(2, "convert", self.path(source), self.path("out.safetensors"), *words, says=says)
        self.assertFalse(os.path.exists(self.path("out.safetensors")))

    def map(self, name, change):
        """One of ours, changed, with all rules of its base."""
        content, base = (json.loads(read_bytes(os.path.join(MAPS, f"{file}.json"))) for file in (name, "llama"))
        rules = {rule["ours"]: rule for rule in (base["rules"] if "base" in content else []) + content["rules"]}
        change(rules)
        content["rules"] = list(rules.values())
        return self.path("map.json", json.dumps(content).encode())

    def test_there_and_back(self):
        names = networks()
        self.assertGreaterEqual(len(names), 26)
        self.make(*names)
        for name in names:
            config, out = self.config(name), self.path(f"{name}.safetensors")
            said = self.good("convert", self.path(name), out)
            self.assertIn(f"{config['model_type']} with {config.get('num_hidden_layers', 2)} layers", said)
            self.assertEqual(json.loads(read(out)[1]["note"]), {"network": config["model_type"], "config": config})
            os.mkdir(self.path(f"{name}/back"))
            self.good("convert", out, self.path(f"{name}/back/model.safetensors"), "--to", config["model_type"])
            self.assertEqual(read(self.path(f"{name}/back/model.safetensors"))[0],
                             read(self.path(f"{name}/model.safetensors"))[0], name)
            self.assertEqual(json.loads(read_bytes(self.path(f"{name}/back/config.json"))), config)
        for grid in GRIDS:
            done = self.models("--load", self.folder, "--grid", grid, *names)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(done.stdout.count(": as transformers\n"), len(names))

    def test_older_configs(self):
        """Those of transformers 4 say the same."""
        for name in networks():
            self.make(name)
            self.good("convert", self.path(name), self.path("new"))
            self.path(f"{name}/config.json", read_bytes(os.path.join(ARGUMENTS.networks, name, "config4.json")))
            self.good("convert", self.path(name), self.path("old"))
            self.assertEqual(read(self.path("old"))[0], read(self.path("new"))[0], name)

    def test_maps_that_are_wrong(self):
        """Logits show what is mistaken in a map."""
        def swap(rules, key="block{i}.qkv.weight", first=1):
            theirs = rules[key]["theirs"]
            theirs[first], theirs[first + 1] = theirs[first + 1], theirs[first]

        def swap_norms(rules):
            q, k = (rules[f"block{{i}}.attention.{part}_gamma"] for part in "qk")
            q["theirs"], k["theirs"] = k["theirs"], q["theirs"]
        mistakes = [("llama", "llama", swap), ("glm4", "glm4", swap), ("llama", "qwen3", swap_norms),
                    ("starcoder2", "starcoder2", lambda rules: swap(rules, "block{i}.qkv.bias")),
                    ("llama", "granite", lambda rules: swap(rules, "block{i}.fc.weight", 0)),
                    ("gpt_neox", "gpt_neox", lambda rules: rules["block{i}.qkv.weight"].pop("by_head")),
                    ("gpt_neox", "gpt_neox", lambda rules: rules["block{i}.qkv.bias"].pop("by_head"))]
        for name, network, change in mistakes:
            self.make(network)
            out = self.path(f"{network}.safetensors")
            for words, code in ([], 0), (["--from", self.map(name, change)], 1):
                self.good("convert", self.path(network), out, *words)
                note = json.dumps({"config": self.config(network)})
                write(out, read(out)[0], {"note": note})  # which a map of one's own does not make
                done = self.models("--load", self.folder, "--grid", "2x1x1x1", network)
                self.assertEqual((done.returncode, "of logits" in done.stderr), (code, code == 1), (network, words))

    def test_parts(self):
        """Which rows of theirs are which of ours."""
        self.make("gpt_neox", "gpt2", "phi3", "olmo2", "llama")
        found = {}
        for name in "gpt_neox", "gpt2", "phi3", "olmo2", "llama":
            self.good("convert", self.path(name), self.path("out.safetensors"))
            found[name] = read(self.path("out.safetensors"))[0], read(self.path(f"{name}/model.safetensors"))[0]
        ours, theirs = found["gpt_neox"]
        for ending in "weight", "bias":
            kind, shape, data = theirs[f"gpt_neox.layers.1.attention.query_key_value.{ending}"]
            row = BYTES[kind] * count(shape) // 180
            rows = [data[at * row:(at + 1) * row] for at in range(180)]
            expected = [rows[(head * 3 + part) * 10 + at] for part in range(3) for head in range(6) for at in range(10)]
            self.assertEqual(ours[f"block1.qkv.{ending}"], (kind, shape, b"".join(expected)))
        self.assertEqual(ours["head.weight"], theirs["embed_out.weight"])
        ours, theirs = found["gpt2"]
        self.assertEqual(ours["block0.qkv.weight"], transposed(theirs["transformer.h.0.attn.c_attn.weight"]))
        ours, theirs = found["phi3"]
        self.assertEqual(ours["block1.fc.weight"], theirs["model.layers.1.mlp.gate_up_proj.weight"])
        ours, theirs = found["olmo2"]
        layer = "model.layers.1.self_attn."
        self.assertEqual(ours["block1.qk_norm.gamma"], joined(theirs[layer + "q_norm.weight"],
                                                              theirs[layer + "k_norm.weight"]))
        ours, theirs = found["llama"]
        self.assertEqual(ours["block1.qkv.weight"], joined(*(theirs[f"{layer}{part}_proj.weight"] for part in "qkv")))

    def test_several_files(self):
        """As large models are published: a layer begins in one file and ends in the next."""
        self.make("llama")
        tensors = read(self.path("llama/model.safetensors"))[0]
        self.good("convert", self.path("llama"), self.path("one.safetensors"))
        names, n = sorted(tensors), 3
        shards = {f"model-0000{i + 1}-of-0000{n}.safetensors": names[i * 7:(i + 1) * 7] for i in range(n)}
        for shard, own in shards.items():
            self.file(f"llama/{shard}", {name: tensors[name] for name in own}, {"format": "pt"})
        os.remove(self.path("llama/model.safetensors"))
        index = {"metadata": {"total_parameters": 1, "total_size": sum(len(data) for _, _, data in tensors.values())},
                 "weight_map": {name: shard for shard, own in shards.items() for name in own}}
        self.path("llama/model.safetensors.index.json", json.dumps(index).encode())
        for source in "llama", "llama/model.safetensors.index.json":
            self.good("convert", self.path(source), self.path("out.safetensors"))
            self.assertEqual(read_bytes(self.path("out.safetensors")), read_bytes(self.path("one.safetensors")))
        os.mkdir(self.path("back"))
        self.good("convert", self.path("one.safetensors"), self.path("back/model.safetensors"), "--to", "llama",
                  "--max-size", "60K")
        written = json.loads(read_bytes(self.path("back/model.safetensors.index.json")))
        self.assertEqual(written["metadata"]["total_size"], index["metadata"]["total_size"])
        self.assertEqual(set(written["weight_map"]), set(tensors))
        self.assertGreater(len(set(written["weight_map"].values())), 2)
        self.good("convert", self.path("back"), self.path("again.safetensors"))
        self.assertEqual(read(self.path("again.safetensors"))[0], read(self.path("one.safetensors"))[0])
        shard = self.path(f"llama/{list(shards)[1]}")
        os.remove(self.path("out.safetensors"))
        self.path(shard, read_bytes(shard)[:-8])
        self.refuse([os.path.basename(shard), "bytes"], "llama")
        os.remove(shard)
        self.refuse([os.path.basename(shard)], "llama")

    def test_types(self):
        """The config.json that is written names the type of the output."""
        self.make("qwen3")
        self.good("convert", self.path("qwen3"), self.path("out.safetensors"), "--dtype", "bf16")
        os.mkdir(self.path("back"))
        said = self.good("convert", self.path("out.safetensors"), self.path("back/model.safetensors"), "--to", "qwen3")
        self.assertIn("back/config.json: that of this network\n", said)
        self.assertEqual(json.loads(read_bytes(self.path("back/config.json"))),
                         self.config("qwen3") | {"dtype": "bfloat16"})

    def test_digits(self):
        """Numbers of a config.json stay as they are."""
        self.make("granite")
        config = self.config("granite") | {"attention_multiplier": 0.1 + 0.2, "residual_multiplier": 1 / 3}
        self.path("granite/config.json", json.dumps(config).encode())
        self.good("convert", self.path("granite"), self.path("out.safetensors"))
        self.assertEqual(json.loads(read(self.path("out.safetensors"))[1]["note"])["config"], config)
        os.mkdir(self.path("back"))
        self.good("convert", self.path("out.safetensors"), self.path("back/model.safetensors"), "--to", "granite")
        self.assertEqual(json.loads(read_bytes(self.path("back/config.json"))), config)

    def test_configs_of_others(self):
        """The first tensor that is not the network's is named."""
        self.make("llama", "qwen3", "phi3", "olmo2")
        for own, other, says in (("llama", "qwen3", "lacks block0.attention.q_gamma [10]"),
                                 ("qwen3", "llama", "has block0.attention.q_gamma"),
                                 ("llama", "phi3", "does not know"), ("olmo2", "llama", "does not know"),
                                 ("phi3", "glm4", "does not know")):
            shutil.copy(os.path.join(ARGUMENTS.networks, other, "config.json"), self.path(f"{own}/config.json"))
            self.refuse([says], own)
        shutil.copy(os.path.join(ARGUMENTS.networks, "llama/config.json"), self.path("llama/config.json"))
        for key, value, says in (
                ("num_hidden_layers", 1, ["has block1.", "lacks"]), ("num_hidden_layers", 3, ["lacks block2."]),
                ("num_hidden_layers", 1 << 28, ["too few for the 268435456 layers"]),
                ("num_key_value_heads", 3, ["block0.qkv.weight is [100, 36], but [120, 36] by", "config.json"]),
                ("vocab_size", 68, ["embedding.weight is [67, 36], but [68, 36]"]),
                ("intermediate_size", 51, ["block0.fc.weight is [104, 36], but [102, 36]"]),
                ("attention_bias", True, ["lacks block0.qkv.bias [100]"]),
                ("tie_word_embeddings", True, ["has head.weight", "tie_word_embeddings is true"]),
                ("hidden_act", "quick_gelu", ["hidden_act", "quick_gelu"]),
                ("num_experts", 4, ["num_experts", "mixture of experts"]),
                ("architectures", ["LlamaForSequenceClassification"], ["LlamaForSequenceClassification"])):
            self.path("llama/config.json", json.dumps(self.config("llama") | {key: value}).encode())
            self.refuse(says, "llama")
            shutil.copy(os.path.join(ARGUMENTS.networks, "llama/config.json"), self.path("llama/config.json"))
        self.refuse(["model_type is llama", "--from phi3"], "llama", "--from", "phi3")
        both = {"model_type": "llava", "tie_word_embeddings": False, "text_config": self.config("llama")}
        self.path("llama/config.json", json.dumps(both).encode())
        self.refuse(["more than a language model", "llama"], "llama")

    def test_mixtures(self):
        for name in "mixtral", "qwen3_moe", "gpt_oss":
            self.make("llama")
            self.path("llama/config.json", json.dumps(self.config("llama") | {"model_type": name}).encode())
            self.refuse([name, "mixture of experts"], "llama")

    def test_tied(self):
        """A head with other elements than the table contradicts the config.json; one with the same is left out."""
        self.make("qwen2")
        tensors = read(self.path("qwen2/model.safetensors"))[0]
        table = tensors["model.embed_tokens.weight"]
        self.good("convert", self.path("qwen2"), self.path("out.safetensors"))
        before = read(self.path("out.safetensors"))[0]
        self.file("qwen2/model.safetensors", {**tensors, "lm_head.weight": table})
        said = self.good("convert", self.path("qwen2"), self.path("out.safetensors"))
        self.assertIn("the same elements: lm_head.weight", said)
        self.assertEqual(read(self.path("out.safetensors"))[0], before)
        os.remove(self.path("out.safetensors"))
        self.file("qwen2/model.safetensors", {**tensors, "lm_head.weight": (*table[:2], table[2][::-1])})
        self.refuse(["has head.weight", "tie_word_embeddings is true"], "qwen2")
        self.file("qwen2/model.safetensors", tensors)
        self.path("qwen2/config.json", json.dumps(self.config("qwen2") | {"tie_word_embeddings": False}).encode())
        self.refuse(["lacks head.weight [67, 36]", "tie_word_embeddings is false"], "qwen2")

    def test_without_a_config(self):
        """Names alone, where rows are not stored head by head."""
        self.make("qwen3", "gpt_neox")
        for name in "qwen3", "gpt_neox":
            self.good("convert", self.path(name), self.path(f"{name}.safetensors"))
            os.remove(self.path(f"{name}/config.json"))
        said = self.good("convert", self.path("qwen3"), self.path("out.safetensors"), "--from", "qwen3")
        self.assertIn("no config.json lies beside", said)
        self.assertEqual(read(self.path("out.safetensors"))[0], read(self.path("qwen3.safetensors"))[0])
        self.assertNotIn("note", read(self.path("out.safetensors"))[1])
        said = self.good("convert", self.path("out.safetensors"), self.path("back.safetensors"), "--to", "qwen3")
        self.assertIn("no config.json is written", said)
        self.assertFalse(os.path.exists(self.path("config.json")))
        os.remove(self.path("out.safetensors"))
        self.refuse(["how many heads", "config.json"], "gpt_neox", "--from", "gpt_neox")
        ours, _ = read(self.path("gpt_neox.safetensors"))
        self.file("plain.safetensors", ours)
        self.refuse(["how many heads"], "plain.safetensors", "--to", "gpt_neox")
        self.good("convert", self.path("gpt_neox.safetensors"), self.path("a.safetensors"), "--to", "gpt_neox")
        os.remove(self.path("config.json"))  # the note of what was written says it, too
        self.good("convert", self.path("a.safetensors"), self.path("out.safetensors"), "--from", "gpt_neox")
        self.assertEqual(read(self.path("out.safetensors"))[0], ours)

    def test_notes_of_others(self):
        """A note that is not a network's is kept, and no config.json is made of it."""
        self.make("llama")
        self.good("convert", self.path("llama"), self.path("ours.safetensors"))
        tensors, _ = read(self.path("ours.safetensors"))
        for note in "words", "{}", '{"config": 3}', '{"config": {"model_type": "bert"}}', '{"config": {"a": 1}}':
            self.file("noted.safetensors", tensors, {"note": note})
            said = self.good("convert", self.path("noted.safetensors"), self.path("out.safetensors"), "--to", "llama")
            self.assertIn("no config.json is written: ", said)
            self.assertEqual(read(self.path("out.safetensors"))[1]["note"], note)

    def test_head_by_head_in_little_memory(self):
        """More than one band, and a matrix larger than the memory."""
        hidden, heads = 2048, 16
        config = {"model_type": "gpt_neox", "num_hidden_layers": 1, "hidden_size": hidden, "vocab_size": 8,
                  "intermediate_size": 8, "num_attention_heads": heads, "tie_word_embeddings": True}
        self.path("hf/config.json", json.dumps(config).encode())
        choose, layer = random.Random(SEED), "gpt_neox.layers.0."

        def tensor(*shape):
            return "F32", list(shape), choose.randbytes(4 * count(shape))
        tensors = {"gpt_neox.embed_in.weight": tensor(8, hidden)}
        for name, rows, cols in (("attention.query_key_value", 3 * hidden, hidden), ("attention.dense", hidden, hidden),
                                 ("mlp.dense_h_to_4h", 8, hidden), ("mlp.dense_4h_to_h", hidden, 8)):
            tensors |= {f"{layer}{name}.weight": tensor(rows, cols), f"{layer}{name}.bias": tensor(rows)}
        for name in layer + "input_layernorm", layer + "post_attention_layernorm", "gpt_neox.final_layer_norm":
            tensors |= {f"{name}.weight": tensor(hidden), f"{name}.bias": tensor(hidden)}
        self.file("hf/model.safetensors", tensors)

        def limit():
            resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
        alone = {"env": {**os.environ, "OPENBLAS_NUM_THREADS": "1"}, "preexec_fn": limit}
        if ckpt("--help", **alone).returncode:  # a sanitizer needs more
            del alone["preexec_fn"]
        self.good("convert", self.path("hf"), self.path("out.safetensors"), **alone)
        self.good("convert", self.path("out.safetensors"), self.path("back.safetensors"), "--to", "gpt_neox", **alone)
        self.assertEqual(read(self.path("back.safetensors"))[0], tensors)
        _, _, data = read(self.path("out.safetensors"))[0]["block0.qkv.weight"]
        _, _, their = tensors[layer + "attention.query_key_value.weight"]
        row, size = 4 * hidden, hidden // heads
        for _ in range(300):
            part, head, at = choose.randrange(3), choose.randrange(heads), choose.randrange(size)
            mine, theirs = (part * heads + head) * size + at, (head * 3 + part) * size + at
            self.assertEqual(data[mine * row:(mine + 1) * row], their[theirs * row:(theirs + 1) * row])


if __name__ == "__main__":
    print(f"seed {SEED}")
    cases.main("quadrille", "models", "networks")
