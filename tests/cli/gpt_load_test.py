#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train --load: a file is that of a GPT of bytes, whose tensors, note and options say the same, or it is refused
before a network is built.

usage: gpt_load_test.py FOLDER-OF-EXAMPLES
"""
import json
import os
import re
import resource

import cases
from cases import ARGUMENTS, start
import ckpt_files

NOTE = {"network": "gpt2", "layers": 2, "hidden": 12, "heads": 3, "ffn": 48, "epsilon": 1e-5}
MOST_SECS, MOST_KIB = 2, 1 << 20  # of a refusal


class Load(cases.Case):
    def setUp(self):
        super().setUp()
        self.theirs, self.ours = ckpt_files.gpt2(1, hidden=12, vocab=256, context=16)
        self.text = os.path.join(self.folder, "text")
        self.write(self.text, bytes(range(256)) * 8)

    def file(self, tensors, note=None, **more):
        path = os.path.join(self.folder, "a.safetensors")
        metadata = more | ({"note": note if isinstance(note, str) else json.dumps(note)} if note is not None else {})
        ckpt_files.write(path, tensors, metadata)
        return path

    def run_it(self, *words):
        return start(os.path.join(ARGUMENTS.folder, "train"), self.text, *words, "--steps", "0", "--sample", "0",
                     "--val-windows", "2")

    def good(self, *words):
        done = self.run_it(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def bad(self, says, *words):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = self.run_it(*words)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1), done.stderr)
        for part in says:
            self.assertIn(part, done.stderr)
        self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, MOST_SECS)
        self.assertLess(after.ru_maxrss, MOST_KIB)

    def test_a_note(self):
        path = self.file(self.ours, NOTE)
        said = self.good("--load", path)
        self.assertIn("2 layers, hidden 12, 3 heads, context 16", said)
        self.assertNotIn("epsilon", said)
        self.assertIn("3 heads", self.good("--load", path, "--heads", "3", "--layers", "2", "--hidden", "12", "--ffn",
                                           "48", "--epsilon", "1e-5", "--tie", "--ctx", "16", "--local", "2"))

    def test_options_that_say_something_else(self):
        path = self.file(self.ours, NOTE)
        for option, value, stored in (("--heads", "4", "3"), ("--layers", "1", "2"), ("--layers", "3", "2"),
                                      ("--hidden", "24", "12"), ("--ffn", "24", "48"), ("--epsilon", "0.001", "1e-05")):
            self.bad([f"{option} {value}", f"is {stored}", f"leave out {option}"], "--load", path, option, value)

    def test_without_heads(self):
        for note in None, "words", {"step": 3}:
            path = self.file(self.ours, note)
            self.bad(["how many heads", "--heads"], "--load", path)
            said = self.good("--load", path, "--heads", "2")
            self.assertIn("2 heads", said)
            self.assertIn("does not say the epsilon of norms; taken is 1e-05", said)
            self.bad(["--heads 5", "12 features"], "--load", path, "--heads", "5")

    def test_notes_that_are_wrong(self):
        for change, says in (({"hidden": 24}, ['"hidden": 24', "12"]), ({"layers": 3}, ['"layers": 3', "2"]),
                             ({"ffn": 12}, ['"ffn": 12', "48"]), ({"heads": 0}, ['"heads": 0']),
                             ({"heads": "3"}, ["heads"]), ({"epsilon": -1}, ['"epsilon": -1']),
                             ({"heads": 5}, ["5", "12 features"])):
            self.bad(says, "--load", self.file(self.ours, NOTE | change))

    def test_several_files(self):
        """Tensors of all files, whose headers have unlike lengths, in no order: the losses are those of one file."""
        one = self.file(self.ours, NOTE)
        names = sorted(self.ours, key=lambda name: name[::-1])
        folder = os.path.join(self.folder, "shards")
        os.mkdir(folder)
        shards = {f"{'x' * 7 * i}{i}.safetensors": names[i::3] for i in range(3)}
        for i, (shard, own) in enumerate(shards.items()):
            ckpt_files.write(os.path.join(folder, shard), {name: self.ours[name] for name in own},
                             {"note": json.dumps(NOTE)} if i == 1 else {"about": "-" * 99 * i})
        with open(os.path.join(folder, "a.safetensors.index.json"), "w", encoding="ascii") as index:
            json.dump({"weight_map": {name: shard for shard, own in shards.items() for name in own}}, index)
        for words in ["--dtype", "f64"], ["--dtype", "bf16", "--local", "2"], ["--ctx", "5", "--local", "3"]:
            losses = [re.search(r"validation loss (\S+)", self.good("--load", path, *words))[1]
                      for path in (one, folder)]
            self.assertEqual(losses[0], losses[1], words)

    def test_steps_of_an_optimizer(self):
        """No more are taken than begun, and all are counted."""
        for begun, taken, says in ((5, 3, None), (3, 3, None), (0, 0, None), (2 ** 53, 1, None), (2, 3, "steps_taken"),
                                   (3, -1, "steps_taken"), (2 ** 53 + 1, 1, "steps_begun"), (1.5, 1, "steps_begun"),
                                   (None, 1, "steps_begun"), (1, None, "steps_taken")):
            steps = {"steps_begun": begun, "steps_taken": taken}
            path = self.file(self.ours, NOTE, optimizer=json.dumps({key: steps[key] for key in steps
                                                                     if steps[key] is not None}))
            if says:
                self.bad(["optimizer", says], "--load", path)
            else:
                self.good("--load", path)

    def test_a_shorter_context(self):
        path = self.file(self.ours, NOTE)
        self.assertIn("positions: the first 5 of its 16\n", self.good("--load", path, "--ctx", "5", "--local", "2"))
        self.bad(["--ctx 17", "16 positions"], "--load", path, "--ctx", "17")

    def test_damage_after_the_first_positions(self):
        """The checksum is that of the whole table."""
        saved = os.path.join(self.folder, "saved")
        self.good("--load", self.file(self.ours, NOTE), "--save", saved)
        self.good("--load", saved, "--ctx", "5")
        with open(saved, "r+b") as file:
            length = int.from_bytes(file.read(8), "little")
            end = json.loads(file.read(length))["embedding.positions"]["data_offsets"][1]
            file.seek(8 + length + end - 1)
            last = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([last ^ 1]))
        done = self.run_it("--load", saved, "--ctx", "5")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("embedding.positions is damaged", done.stderr)

    def test_damaged_tensors_are_counted(self):
        """The first one in the network's order is named."""
        saved = os.path.join(self.folder, "saved")
        self.good("--load", self.file(self.ours, NOTE), "--save", saved)
        for names in (["norm.gamma"], ["block1.fc.bias", "norm.gamma"],
                      ["embedding.weight", "block0.qkv.weight", "norm.beta"]):
            with open(saved, "r+b") as file:
                length = int.from_bytes(file.read(8), "little")
                tensors = json.loads(file.read(length))
                places = [8 + length + tensors[name]["data_offsets"][0] for name in names]
                before = [os.pread(file.fileno(), 1, at) for at in places]
                for at, byte in zip(places, before):
                    os.pwrite(file.fileno(), bytes([byte[0] ^ 16]), at)
                done = self.run_it("--load", saved, "--local", "2")
                for at, byte in zip(places, before):
                    os.pwrite(file.fileno(), byte, at)
            self.assertEqual(done.returncode, 1, done.stderr)
            more = ("", ", and 1 more tensor", ", and 2 more tensors")[len(names) - 1]
            self.assertRegex(done.stderr, rf"tensor {names[0]} is damaged: its checksum is [0-9a-f]{{8}}, not "
                                          rf"[0-9a-f]{{8}}{more}; use another copy")
        self.good("--load", saved)

    def test_heads_of_their_own(self):
        kind, shape, data = self.ours["embedding.weight"]
        path = self.file({**self.ours, "head.weight": (kind, shape, data[::-1])}, NOTE)
        self.bad(["--tie", "head.weight"], "--load", path, "--tie")
        self.good("--load", path)

    def test_other_vocabularies(self):
        for vocab in 11, 255, 257:
            _, ours = ckpt_files.gpt2(1, hidden=12, vocab=vocab, context=16)
            path = self.file(ours, NOTE)
            if vocab < 256:
                self.bad([f"vocabulary of {vocab}", "byte"], "--load", path)
            else:
                self.assertIn("vocabulary of 257 has more than the 256 bytes", self.good("--load", path))

    def test_files_of_others(self):
        self.bad(["Hugging Face", "quadrille ckpt convert"], "--load", self.file(self.theirs))
        self.bad(["Hugging Face", "quadrille ckpt convert"], "--load", self.file(
            {"transformer." + name: tensor for name, tensor in self.theirs.items()}), "--heads", "3")
        theirs, ours = ckpt_files.llama(1)
        self.bad(["Hugging Face (model.", "quadrille ckpt convert"], "--load", self.file(theirs))
        self.bad(["its note", "model_type", "missing"], "--load", self.file(ours, {"network": "llama", "config": {
            "x": "y" * 9000}}))

    def test_a_network_of_another_kind(self):
        """Its config.json is passed on, unless learned positions have become fewer."""
        _, ours = ckpt_files.llama(1, hidden=8, keys=4, inner=12, vocab=256)
        config = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
                  "num_hidden_layers": 2, "intermediate_size": 12, "vocab_size": 256, "max_position_embeddings": 16,
                  "rms_norm_eps": 1e-05, "bos_token_id": 7}
        saved = os.path.join(self.folder, "saved.safetensors")
        for note in {"network": "llama", "config": config}, {"config": config, "about": "x" * 100000}:
            said = self.good("--load", self.file(ours, note), "--save", saved, "--dtype", "bf16")
            self.assertIn("\na.safetensors: 2 layers, hidden 8, 4 heads, context 16", said)
            passed_on = json.loads(ckpt_files.read(saved)[1]["note"])
            self.assertEqual((passed_on["network"], passed_on["config"]), ("llama", config))
            self.good("--load", saved, "--ctx", "20", "--heads", "4", "--epsilon", "1e-05")
        path = self.file(ours)
        self.bad(["embedding.positions is missing"], "--load", path, "--heads", "4")
        model = os.path.join(self.folder, "config.json")
        self.write(model, json.dumps(config))
        self.good("--load", path, "--model", model, "--heads", "4")
        self.write(model, json.dumps(config | {"num_key_value_heads": 1}))
        self.bad(["block0.qkv.weight is [16,8], not [12,8]"], "--load", path, "--model", model)
        self.bad(["num_key_value_heads", "3"], "--load", self.file(ours, {"config": config | {
            "num_key_value_heads": 3}}))
        self.bad(["2000 layers"], "--load", self.file(ours, {"config": config | {"num_hidden_layers": 2000}}))
        config = {"model_type": "gpt2", "n_embd": 12, "n_head": 3, "n_layer": 2, "vocab_size": 256, "n_positions": 16}
        for ctx in 16, 5:
            self.good("--load", self.file(self.ours, {"config": config}), "--ctx", str(ctx), "--save", saved)
            passed_on = json.loads(ckpt_files.read(saved)[1]["note"])["config"]
            if ctx == 16:
                self.assertEqual(passed_on, config)
            else:
                self.assertEqual((passed_on["architecture"], passed_on["heads"], passed_on["positions"]),
                                 ("gpt2", 3, ctx))
        path = self.file(self.ours, {"config": config | {"n_positions": 64}})
        self.assertIn("context 16", self.good("--load", path))
        self.bad(["--ctx 17", "16 positions"], "--load", path, "--ctx", "17")
        self.bad(["embedding.positions is [16,12], not [15,12]"], "--load", self.file(
            self.ours, {"config": config | {"n_positions": 15}}))

    def test_tensors_that_are_missing_or_wrong(self):
        for name in "embedding.weight", "embedding.positions", "block0.qkv.weight", "block1.proj.bias", "norm.beta":
            rest = {key: tensor for key, tensor in self.ours.items() if key != name}
            self.bad([f"{name} is missing"], "--load", self.file(rest, NOTE))
        for name, shape in (("block1.fc.weight", [12, 48]), ("block0.fc2.weight", [12, 49]), ("norm.gamma", [1, 12]),
                            ("embedding.positions", [16]), ("embedding.positions", [0, 12]),
                            ("block1.qkv.bias", [35])):
            tensor = "F32", shape, bytes(4 * ckpt_files.count(shape))
            self.bad([name, ",".join(map(str, shape))], "--load", self.file({**self.ours, name: tensor}, NOTE))

    def test_tensors_that_are_left(self):
        some = ("F32", [1], bytes(4))
        for name in "block2.norm1.gamma", "block0.qkv.scale", "head.bias", "norm.delta":
            self.bad([f"no tensor {name}"], "--load", self.file({**self.ours, name: some}, NOTE))
        more = {f"other{i}": some for i in range(5)}
        said = self.good("--load", self.file({**self.ours, **more}, NOTE))
        self.assertIn("not loaded: other0, other1, other2 and 2 more\n", said)
        said = self.good("--load", self.file({**self.ours, "optimizer.m.norm.beta": some}, NOTE))
        self.assertNotIn("not loaded", said)

    def test_many_names_of_nothing(self):
        """Blocks without elements build no network."""
        empty = ("U8", [0], b"")
        many = {f"block{i}.qkv.weight": empty for i in range(20000)}
        self.bad(["embedding.weight is missing"], "--load", self.file(many), "--heads", "1")
        tables = {name: self.ours[name] for name in ("embedding.weight", "embedding.positions")}
        self.bad(["block0."], "--load", self.file({**many, **tables}), "--heads", "1")
        _, ours = ckpt_files.gpt2(1, n_blocks=1025, hidden=1, vocab=256, context=2)
        self.bad(["no tensor block1024."], "--load", self.file(ours), "--heads", "1")


if __name__ == "__main__":
    cases.main("folder")
