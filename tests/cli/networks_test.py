#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train with networks of other kinds: those of perfmodel/models, made small, by plans; those of tests/reference by
--model, saved, resumed on other ranks, and loaded.

usage: networks_test.py COMMAND FOLDER-OF-EXAMPLES MODELS NETWORKS [--full]
"""
import array
import glob
import json
import math
import os
import re

import cases
from cases import ARGUMENTS, ranks_of, start

# One of each kind; the others differ in numbers only.
SOME = ["gpt2-xl", "gpt3-13b", "gpt-neox-20b", "llama-7b", "llama-3-8b", "mistral-7b", "qwen2-0.5b"]
# Together they have all kinds of parameters, norms, windows and factors.
SOME_KINDS = ["cohere2", "gemma2", "gemma3", "glm4", "gpt2", "gpt_neox", "granite", "llama-tied-biases", "olmo3",
              "phi3-long", "qwen3", "smollm3"]
SHRUNK = {"n_embd": 16, "hidden_size": 16, "n_inner": 16, "intermediate_size": 16, "head_dim": 16}
LAYERS = {"n_layer": 2, "num_hidden_layers": 2}
SEQUENCE = 32
MASK = (1 << 64) - 1


def mixed(bits):
    """The finaliser of splitmix64."""
    bits = (bits + 0x9e3779b97f4a7c15) & MASK
    bits = ((bits ^ bits >> 30) * 0xbf58476d1ce4e5b9) & MASK
    bits = ((bits ^ bits >> 27) * 0x94d049bb133111eb) & MASK
    return bits ^ bits >> 31


def drawn(chances, temperature, seed):
    """The first token that this seed draws."""
    weights = [chance ** (1 / temperature) for chance in chances]
    left = (mixed(mixed(seed ^ 0x5a17)) >> 11) * 2**-53 * sum(weights)
    for token, weight in enumerate(weights):
        if left < weight:
            return token
        left -= weight
    return len(weights) - 1


def shrunk(config):
    """Of 2 layers and a sixteenth of the width, with as many heads; windows that the sequences are longer than."""
    small = config | {key: config[key] // SHRUNK[key] for key in SHRUNK if key in config}
    small |= {key: LAYERS[key] for key in LAYERS if key in config} | {"vocab_size": 256}
    return small | ({"sliding_window": 8} if config.get("sliding_window") else {})


def kinds():
    names = sorted(path.split("/")[-2] for path in glob.glob(f"{ARGUMENTS.networks}/*/config.json"))
    assert len(names) == 26 and set(names) > set(SOME_KINDS), names
    return names if ARGUMENTS.full else SOME_KINDS


class Networks(cases.Case):
    def setUp(self):
        super().setUp()
        lines = [f"{i}: {i * i} and {i * 7919 % 1000}\n" for i in range(300)]
        self.text = self.write("text.txt", "".join(lines))

    def train(self, *words, code=0):
        """The losses by step, and what was said."""
        log = self.path("run.jsonl")
        done = start(os.path.join(ARGUMENTS.examples, "train"), self.text, *words, "--sample", "0",
                     "--val-windows", "4", "--log", log, timeout=300)
        self.assertEqual(done.returncode, code, done.err)
        if code:
            self.assertEqual(len(done.err.splitlines()), 1, done.err)
            return {}, done.err
        lines = [json.loads(line) for line in self.read("run.jsonl").splitlines()]
        os.remove(log)
        self.about = lines[0]["run"]
        return {line["step"]: line["loss"] for line in lines[1:] if "loss" in line}, done.err

    def config(self, name, config):
        return self.write(f"{name}/config.json", json.dumps(config))

    def plan(self, config, recompute="none", sequence=SEQUENCE, dtype="f32", pick=1):
        plan = self.path("plan.json")
        self.assert_done(start(ARGUMENTS.command, "plan", config, "-n", "8", "--machine", "laptop", "--batch", "8",
                               "--seq", str(sequence), "--dtype", dtype, "--recompute", recompute, "-o", plan,
                               "--pick", str(pick)))
        return plan

    def test_every_plan_runs(self):
        """The five fastest of each recomputation: whatever the grid, the losses are equal."""
        models = sorted(glob.glob(ARGUMENTS.models + "/*.json")) if ARGUMENTS.full else \
            [f"{ARGUMENTS.models}/{name}.json" for name in ("qwen2-0.5b",)]
        for path in models:
            name = os.path.basename(path)[:-5]
            with open(path, encoding="utf-8") as file:
                config = self.config(name, shrunk(json.load(file)))
            self.assert_plans_agree(name, config)
        for name in kinds() if ARGUMENTS.full else ():
            with open(f"{ARGUMENTS.networks}/{name}/config.json", encoding="utf-8") as file:
                self.assert_plans_agree(name, self.config(name, json.load(file) | {"vocab_size": 256}))

    def planned_bytes(self, said):
        """Of rank 0: what its peak is, too."""
        planned, peak = re.search(r": (\d+) bytes planned .*, (\d+) at peak", said).groups()
        self.assertEqual(planned, peak)
        return int(planned)

    def test_memory_is_known_before(self):
        """By `mem`, which looks at two layers of each kind."""
        for name in kinds() if ARGUMENTS.full else ("gemma3", "gpt2", "olmo2", "qwen3"):
            with open(f"{ARGUMENTS.networks}/{name}/config.json", encoding="utf-8") as file:
                config = self.config(name, json.load(file) | {"vocab_size": 256})
            for grid in ("2x1x1x1", "1x1x2x1", "1x2x1x2", "2x2x1x1") if ARGUMENTS.full else ("2x1x1x1", "1x2x1x2"):
                for threads, recompute in (1, "none"), (2, "operations"), (3, "full"):
                    self.assert_known(0.015, config, grid, "f32", recompute, threads)

    def test_memory_of_devices_is_known_before(self):
        """To the byte, with panels in which f16 is converted, and with attention on several threads."""
        for name in "gemma3", "gpt2":
            with open(f"{ARGUMENTS.networks}/{name}/config.json", encoding="utf-8") as file:
                config = self.config(name, json.load(file) | {"vocab_size": 256})
            for grid in "1x1x1x1", "1x2x1x1", "2x1x1x2":
                for threads in 1, 2, 3:
                    self.assert_known(0, config, grid, "f16", "none", threads)

    def assert_known(self, share, config, grid, dtype, recompute, threads):
        """The memory within a share, without staging of communicators and what a run is measured with."""
        words = ["--grid", grid, "--batch", "8", "--dtype", dtype, "--recompute", recompute, "--threads", str(threads)]
        _, said = self.train("--model", config, *words, "--local", str(ranks_of(grid)), "--ctx", "64", "--steps", "2")
        done = start(ARGUMENTS.command, "mem", config, *words, "--seq", "64", "--json")
        answer = json.loads(done.out)
        apart, device, measuring = map(int, re.search(r"communication (\d+), device (\d+), measuring (\d+)",
                                                      said).groups())
        planned = self.planned_bytes(said) - apart - measuring
        self.assertAlmostEqual(answer["memory_bytes"], planned, delta=share * planned, msg=f"{config}, {words}")
        self.assertEqual(answer["memory"]["device"], device, f"{config}, {words}")

    def assert_plans_agree(self, name, config):
        first = None
        for recompute in ("none", "operations", "full"):
            for pick in range(1, 6):
                plan = self.plan(config, recompute, 12, "f64", pick)
                losses, said = self.train("--plan", plan, "--local", "8", "--steps", "5", "--threads", "1")
                self.planned_bytes(said)
                first = first or losses
                self.assertEqual(list(losses), list(range(1, 6)))
                for step in losses:
                    self.assertAlmostEqual(losses[step], first[step], delta=1e-9 * first[step],
                                           msg=f"{name}, {recompute}, plan {pick}")

    def test_models_by_plans(self):
        names = sorted(os.path.basename(path)[:-5] for path in glob.glob(ARGUMENTS.models + "/*.json"))
        self.assertEqual(len(names), 38)
        for number, name in enumerate(names if ARGUMENTS.full else SOME):
            with open(f"{ARGUMENTS.models}/{name}.json", encoding="utf-8") as file:
                config = self.config(name, shrunk(json.load(file)))
            plan = self.plan(config, ("full", "none", "operations")[number % 3])
            losses, said = self.train("--plan", plan, "--local", "8", "--steps", "20")
            self.assertIn(f"\n{name}: 2 layers, hidden ", said)
            self.assertEqual((self.about["model"], self.about["context"], len(losses)), (name, SEQUENCE, 20))
            self.assertTrue(all(map(math.isfinite, losses.values())), name)
            self.assertLess(max(losses[step] for step in range(16, 21)), losses[1] - 0.5, name)

    def test_kinds_of_networks(self):
        """What is saved on one grid goes on, on another, as if it had never ended."""
        repeats = (["operations"], ["full"], ["full", "--recompute-every", "2"])
        for number, name in enumerate(kinds()):
            with open(f"{ARGUMENTS.networks}/{name}/config.json", encoding="utf-8") as file:
                config = self.config(name, json.load(file) | {"vocab_size": 256 + number})
            words = ["--steps", "4", "--batch", "2", "--ctx", "24", "--dtype", "f64"]
            file, other = self.path("a.safetensors"), self.path("b.safetensors")
            grids = ("2x1x1x1", "1x1x2x1") if number % 2 else ("1x1x1x2", "1x2x1x1")
            local = ["--local", str(ranks_of(grids[0])), "--grid"]
            whole, said = self.train("--model", config, *words, *local, grids[0])
            self.assertIn(f"\n{name}: ", said)
            self.assertEqual(self.about["vocab"], 256 + number)
            again, _ = self.train("--model", config, *words, *local, grids[0], "--save", file, "--stop-after", "2",
                                  "--recompute", *repeats[number % 3])
            self.assertEqual(again, {step: whole[step] for step in (1, 2)}, name)
            rest, _ = self.train("--resume", file, *local, grids[1], "--save", other)
            self.assertEqual(list(rest), [3, 4])
            for step in rest:
                self.assertAlmostEqual(rest[step], whole[step], delta=1e-9 * whole[step], msg=name)
            _, said = self.train("--load", other, "--model", config, "--steps", "0", "--dtype", "f64")
            self.assertIn(f"\n{name}: ", said)
            self.assert_converted_alike(name, other, config, said)

    def assert_converted_alike(self, name, saved, config, said):
        """A file of Hugging Face, which has this config.json, gives the same loss when it is converted and loaded."""
        theirs, again = self.path(f"back/{name}/model.safetensors"), self.path("again.safetensors")
        os.makedirs(os.path.dirname(theirs))
        with open(config, encoding="utf-8") as file:
            text = file.read()
        model_type = json.loads(text)["model_type"]
        if model_type != "gpt2":  # that of a GPT-2, whose positions are fewer now, is written
            self.write(f"back/{name}/config.json", text)
        for words in ([saved, theirs, "--to", model_type], [theirs, again]):
            done = start(ARGUMENTS.command, "ckpt", "convert", *words)
            self.assertEqual(done.returncode, 0, done.err)
        _, loaded = self.train("--load", again, "--steps", "0", "--dtype", "f64")
        losses = [re.search(r"validation loss (\S+) nats", text)[1] for text in (loaded, said)]
        self.assertEqual(losses[0], losses[1], name)

    def sample(self, *words):
        done = start(os.path.join(ARGUMENTS.examples, "train"), *words, "--val-windows", "1")
        self.assertEqual(done.returncode, 0, done.err)
        return done.out

    def numbers(self, name, tokens):
        return self.write(name, array.array("H", tokens).tobytes())

    def test_samples_of_models(self):
        """Of text, and of tokens by their numbers, from the run and from what it saved, on other ranks."""
        names = sorted(os.path.basename(path)[:-5] for path in glob.glob(ARGUMENTS.models + "/*.json"))
        data = ["--data", self.numbers("a.bin", [i * i % 300 for i in range(2000)]), "--tokens", "uint16"]
        save = self.path("a.safetensors")
        for name in names if ARGUMENTS.full else SOME:
            with open(f"{ARGUMENTS.models}/{name}.json", encoding="utf-8") as file:
                config = shrunk(json.load(file))
            for vocab, what, prompt in ((256, [self.text], "1: 1 and"), (300, data, "7 299 12")):
                words = [*what, "--sample", "20", "--temperature", "0", "--prompt", prompt, "--dtype", "f64", "--ctx",
                         "12"]
                model = self.config(name, config | {"vocab_size": vocab})
                said = self.sample(*words, "--model", model, "--batch", "2", "--steps", "2", "--local",
                                   "2", "--grid", "2x1x1x1", "--save", save)
                self.assertEqual(self.sample(*words, "--load", save, "--steps", "0"), said, name)
                self.assertTrue(said.startswith(prompt + (" " if vocab == 300 else "")), said)
                if vocab == 300:
                    tokens = [int(word) for word in said.split()]
                    self.assertEqual(len(tokens), 3 + 20)
                    self.assertLess(max(tokens), 300)
                else:
                    self.assertLessEqual(len(said) - len(prompt) - 1, 20)
                    self.assertGreaterEqual(len(said) - len(prompt) - 1, 5)

    def test_samples_follow_the_loss(self):
        """The chance of each token is that of the loss of a text that ends with it, which --eval gives."""
        n_tokens, prompt = 7, [3, 6, 0, 5]
        data = ["--data", self.numbers("a.bin", [i * i * i % n_tokens for i in range(2000)]), "--tokens", "uint16"]
        save = self.path("a.safetensors")
        for name in kinds():
            with open(f"{ARGUMENTS.networks}/{name}/config.json", encoding="utf-8") as file:
                config = self.config(name, json.load(file) | {"vocab_size": n_tokens})
            words = ["--model", config, "--ctx", "12", "--batch", "2", "--steps", "2", "--init", "0.6"]
            self.sample(*data, *words, "--dtype", "f64", "--sample", "0", "--local", "2", "--grid", "1x2x1x1", "--save",
                        save)
            losses = []
            for token in range(n_tokens):
                answer = self.sample("--eval", self.numbers("end.bin", prompt + [token]), "--load", save, "--tokens",
                                     "uint16", "--dtype", "f64")
                losses.append(len(prompt) * json.loads(answer)["loss"])
            chances = [math.exp(min(losses) - loss) for loss in losses]
            words = [*data, "--load", save, "--steps", "0", "--dtype", "f64", "--prompt", " ".join(map(str, prompt))]
            likeliest = [int(word) for word in self.sample(*words, "--sample", "1", "--temperature", "0").split()]
            self.assertEqual(likeliest, prompt + [chances.index(1)], name)
            for factor in 0.5, 1, 2:  # what would be drawn with this factor in the wrong place is something else
                seed = next(seed for seed in range(1 << 20) if factor == 1 or drawn(chances, 0.7, seed) !=
                            drawn(chances, 0.7 * factor, seed))
                said = self.sample(*words, "--sample", "1", "--temperature", "0.7", "--seed", str(seed), "--local", "2",
                                   "--grid", "2x1x1x1").split()
                self.assertEqual(int(said[-1]), drawn(chances, 0.7, seed), (name, seed))

    def test_layers_alone(self):
        """`bench layer` and transformer_layer take them, too, and `plan` and `mem`, as they are."""
        for path in [f"{ARGUMENTS.networks}/{name}/config.json" for name in kinds()]:
            words = ["--iterations", "1", "--local", "2", "--json", "--grid", "1x2x1x1"]
            done = start(ARGUMENTS.command, "bench", "layer", "--model", path, "--layers", "2", "--sequences", "2",
                         "--context", "12", "--machine", "laptop", *words)
            answer = json.loads(self.assert_done(done))
            with open(path, encoding="utf-8") as file:
                hidden = json.load(file).get("hidden_size", 36)
            self.assertEqual((answer["model"], answer["hidden"], len(answer["rows"])),
                             (path.split("/")[-2], hidden, 3))
            done = start(os.path.join(ARGUMENTS.examples, "transformer_layer"), "--model", path, "--ctx", "12", *words)
            self.assertEqual(json.loads(self.assert_done(done))["hidden"], hidden)
            for command in "plan", "mem":
                self.assert_done(start(ARGUMENTS.command, command, path, "-n", "4", "--machine", "laptop"))
        for words, says in ((["--model", path, "--hidden", "36"], "leave out --hidden"),
                            (["--model", path, "--layers", "9"], "--layers 9, but"),
                            (["--model", "lama-7b"], "llama-7b")):
            self.assert_refused(start(ARGUMENTS.command, "bench", "layer", *words), says)
        done = start(ARGUMENTS.command, "bench", "layer", "--model", "axonn-640b", "--layers", "105")
        self.assert_refused(done, "of two stacks of 105 layers take", "GiB of a node's", code=3)

    def test_what_is_refused(self):
        _, said = self.train("--model", "lama-7b", code=2)
        self.assertIn("llama-7b", said)
        _, said = self.train("--model", self.path("none.json"), code=2)
        self.assertIn("none.json", said)
        with open(f"{ARGUMENTS.networks}/llama/config.json", encoding="utf-8") as file:
            llama = json.load(file)
        _, said = self.train("--model", self.config("mixture", llama | {"num_local_experts": 4}), code=2)
        self.assertIn("mixture of experts", said)
        _, said = self.train("--model", self.config("few", llama), code=2)
        self.assertIn("few/config.json has a vocabulary of 67", said)
        config = self.config("llama", llama | {"vocab_size": 256})
        for option, key in (("--layers", "num_hidden_layers"), ("--hidden", "hidden_size"),
                            ("--ffn", "intermediate_size"), ("--heads", "num_attention_heads"),
                            ("--epsilon", "rms_norm_eps")):
            value = llama[key] * 2
            _, said = self.train("--model", config, option, str(value), code=2)
            self.assertIn(f"{option} {value:g}, but that of {config} is {llama[key]:g}; leave out {option}", said)
        self.train("--model", config, "--hidden", str(llama["hidden_size"]), "--ctx", "8", "--steps", "1")
        other = self.config("other", llama | {"vocab_size": 256, "num_key_value_heads": 1})
        _, said = self.train("--model", other, "--plan", self.plan(config), "--local", "8", code=2)
        self.assertIn("a network, llama, whose kv_heads is 2, but here kv_heads is 1", said)
        saved = self.path("a.safetensors")
        self.train("--model", config, "--steps", "1", "--save", saved)
        _, said = self.train("--model", other, "--load", saved, code=2)
        self.assertIn(f"--model {other} has kv_heads 1, but that of {saved} is 2; leave out --model", said)
        _, said = self.train("--load", saved, "--tie", code=2)
        self.assertIn("a head of its own", said)

    def test_contexts(self):
        """Rotary positions have no end; learned ones do."""
        def with_context(name, **changes):
            with open(f"{ARGUMENTS.networks}/{name}/config.json", encoding="utf-8") as file:
                return self.config(name, json.load(file) | {"vocab_size": 256} | changes)
        rotary, learned = with_context("llama", max_position_embeddings=20), with_context("gpt2", n_positions=20)
        for config in rotary, learned:
            self.train("--model", config, "--steps", "1")
            self.assertEqual(self.about["context"], 20)
        _, said = self.train("--model", rotary, "--steps", "1", "--ctx", "24")
        self.assertIn("sequences of 24 tokens are longer than the 20 positions that llama is made for", said)
        _, said = self.train("--model", learned, "--ctx", "24", code=2)
        self.assertIn(f"--ctx 24 is longer than the 20 positions of {learned}; use at most 20", said)
        saved = self.path("a.safetensors")
        for config in rotary, learned:
            self.train("--model", config, "--steps", "2", "--ctx", "12", "--save", saved, "--stop-after", "1")
            _, said = self.train("--resume", saved, "--ctx", "20", code=2)
            self.assertIn("--ctx 20", said)
            self.train("--resume", saved)
            self.assertEqual(self.about["context"], 12)


if __name__ == "__main__":
    cases.main("command", "examples", "models", "networks", flags=["--full"])
