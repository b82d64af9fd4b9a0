#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans of the example programs, from files and from the model.

usage: examples_plans_test.py EXAMPLES_DIR [--mpiexec MPIEXEC]
"""
import json
import os
import re
import subprocess

import cases
import examples_test as shared


class Plans(shared.Case):
    """Grids chosen by a plan or by the model: the numbers are those of the same grid given by hand."""

    chosen = re.compile(r"^grid auto: (\d+x\d+x\d+x\d+), order ([xyzd]{4}), (replicated|scattered), micro-batch (\d+): "
                        r"(\S+) s per step predicted on (\S+); \S.*$", re.MULTILINE)

    def config(self):
        """The network of shared.SIZES."""
        os.makedirs(self.path("gpt2"), exist_ok=True)
        self.write(self.path("gpt2/config.json"), json.dumps({
            "model_type": "gpt2", "n_layer": 2, "n_embd": 24, "n_head": 3, "n_positions": 64, "vocab_size": 256,
            "tie_word_embeddings": False}))
        return self.path("gpt2/config.json")

    def test_complaints(self):
        self.complain_of_plan(ranks=4, grid=[2, 1, 2, 1], says=["2x1x2x1", "4 ranks", "2 were started", "--local 4"])
        self.complain_of_plan(recompute="some", says=["plan.json", "recompute"])
        self.complain_of_plan(grid=[1, 1, 1, 2], optimizer_parts=3, says=["optimizer state in 3 parts", "such as 2"])
        self.complain_of_plan(pipeline=2, ranks=4, says=["pipeline of 2"])
        self.complain_of_plan(codecs="hybird", says=["plan.json", "hybird", "hybrid"])
        self.complain_of_plan(layout="both", says=["plan.json", "layout"])
        self.complain_of_plan(quadrille_plan=4, says=["plan.json", "quadrille_plan"])
        self.complain_of_plan(quadrille_plan=1, says=["plan.json", "'quadrille_plan' is 1", "plan again"])
        self.complain_of_plan(experts=8, says=["plan.json", "'experts'"])
        self.complain_of_plan("--grid", "2x1x1x1", says=["--plan", "--grid", "leave one"])
        self.complain_of_plan("--grid", "auto", says=["--plan", "--grid", "leave one"])
        self.complain_of_plan("--order", "xyzd", says=["--plan", "--order", "leave one"])
        os.remove(self.path("plan.json"))
        self.complain("train", self.text, "--plan", self.path("plan.json"), says=["plan.json", "No such file"])

    def test_a_plan(self):
        path = self.plan()
        lines, talk = self.train_by_plan("--plan", path, "--local", "2")
        self.assertIn("made for gpt2 on laptop: 1.5 s per step", talk.splitlines()[0])
        self.assertIn("grid 2x1x1x1 (scattered, f64", talk)
        expected = self.by_hand("--order", "yxzd", "--layout", "scattered", "--micro-batch", "2", grid="2x1x1x1")
        self.assert_same_losses(lines, expected, 1e-9)

    def test_sizes_of_a_plan(self):
        """They are what is not given; what is given must be the same."""
        for tied in (False, True):
            path, log = self.plan(sizes={"tied": tied}), self.path("sizes.jsonl")
            words = ("--plan", path, "--local", "2", "--steps", "3", "--val-windows", "7", "--sample", "0")
            done = shared.run("train", self.text, *words, "--log", log)
            self.assertEqual(done.returncode, 0, done.err)
            with open(log, encoding="ascii") as file:
                lines = [line for line in map(json.loads, file) if "loss" in line]
            os.remove(log)
            expected = self.by_hand("--order", "yxzd", "--layout", "scattered", "--micro-batch", "2",
                                    *["--tie"] * tied, grid="2x1x1x1")
            self.assert_same_losses(lines, expected, 1e-9)
        for words, planned in (
                (("--layers", "3"), "2"), (("--hidden", "48"), "24"), (("--heads", "2"), "3"), (("--ffn", "24"), "96"),
                (("--epsilon", "0.1"), "1e-05")):
            path = self.plan()
            done = shared.run("train", self.text, "--plan", path, "--local", "2", *words)
            self.assertEqual(done.returncode, 2, done.err)
            self.assertIn(f"{' '.join(words)}, but that of {path} is {planned}; leave out {words[0]}", done.err)
        done = shared.run("train", self.text, "--plan", self.plan(), "--local", "2", "--tie")
        self.assertEqual(done.returncode, 2, done.err)
        self.assertIn("has a head of its own, head.weight; leave out --tie", done.err)

    def test_plans_of_other_networks(self):
        """They are trained, or one of their layers is timed; beside a model they must be of it."""
        for sizes in ({"activation": "silu"}, {"activation": "gelu"}, {"kv_heads": 1}, {"head_size": 16},
                      {"architecture": "llama", "positions": 0}, {"window": 6, "window_layers": 1}, {"gated": True},
                      {"qkv_bias": False}, {"norm": "rms"}, {"parallel_residual": True}, {"vocab": 300},
                      {"norm_place": "after"}, {"logits_cap": 2.5},
                      {"layers": 3, "layer_kinds": "130", "window": 6, "window_layers": 2}):
            path = self.plan(sizes=sizes)
            for program, words in ("train", ("--steps", "2", "--sample", "0")), ("transformer_layer", (
                    "--iterations", "1")):
                done = shared.run(program, *[self.text] * (program == "train"), "--plan", path, "--local", "2",
                                  *words)
                self.assertEqual(done.returncode, 0, done.err)
            key = next(iter(sizes))
            for program in "train", "transformer_layer":
                done = shared.run(program, "--plan", path, "--local", "2", "--model", self.config())
                self.assertEqual(done.returncode, 2, done.err)
                self.assertIn(f"whose {key} is ", done.err)
                self.assertIn(f", but here {key} is ", done.err)
        path = self.plan(sizes={"vocab": 50257, "layers": 7, "ffn": 100})
        done = shared.run("transformer_layer", "--plan", path, "--local", "2", "--iterations", "1")
        self.assertEqual(done.returncode, 0, done.err)
        self.assertIn("this is one of 7 layers", done.err)
        self.assertNotIn("predicted", done.err)
        self.assertIn("hidden 24, 3 heads", done.out)

    def test_options_beside_a_plan_win(self):
        path = self.plan(network="mine")
        lines, talk = self.train_by_plan("--plan", path, "--local", "2", "--batch", "4", "--layout", "replicated",
                                         "--micro-batch", "4", "--ctx", "16")
        self.assertIn("made for mine on laptop, but here layout is replicated, not scattered; ", talk)
        self.assertIn("(replicated, f64", talk)
        expected = self.by_hand("--batch", "4", "--ctx", "16", grid="2x1x1x1")
        self.assert_same_losses(lines, expected, 1e-9)

    def test_threads_of_a_plan(self):
        """They are told where others run, and change nothing."""
        path, config = self.path("plan.json"), self.config()
        command = os.path.join(shared.ARGUMENTS.examples_dir, "..", "src", "quadrille")
        subprocess.run([command, "plan", config, "-n", "2", "--machine", "laptop", "--batch", "8", "--seq", "16",
                        "--dtype", "f32", "--threads", "2", "-o", path], check=True, capture_output=True, timeout=60)
        _, talk = self.train_by_plan("--plan", path, "--local", "2", "--threads", "2")
        self.assertIn(" s per step predicted\n", talk)
        _, talk = self.train_by_plan("--plan", path, "--local", "2", "--threads", "1")
        self.assertIn(" on laptop, but here threads is 1, not 2\n", talk)

    def test_what_is_said_of_a_plan(self):
        """Of other software's recomputation, what a stack does instead; and whether anything overlaps."""
        for recompute, here in ("attention", "none"), ("layers", "full"), ("full", None):
            _, talk = self.train_by_plan("--plan", self.plan(recompute=recompute), "--local", "2")
            self.assertEqual(f", but here recompute is {here}, not {recompute}\n" in talk, here is not None, talk)
            self.assertEqual(", recompute full)" in talk, recompute != "attention", talk)
        for overlap, word in (8, "off"), (1, "on"):
            _, talk = self.train_by_plan("--plan", self.plan(overlap=overlap), "--local", "2")
            self.assertIn(f", overlap {word})", talk)

    def test_what_a_plan_leaves_out(self):
        path = self.path("plan.json")
        with open(path, "w", encoding="ascii") as file:
            json.dump({"quadrille_plan": 3, "sizes": shared.SIZES, "grid": [1, 1, 2, 1], "batch": 3,
                       "layout": "replicated", "dtype": "f32"}, file)
        _, talk = self.train_by_plan("--plan", path, "--local", "2")
        self.assertIn("a network: 2 layers", talk)
        self.assertIn("context 64", talk)
        self.assertIn("3 steps of 192 tokens", talk)

    def test_a_plan_of_the_command(self):
        """The folder's name is that of another network; its sizes count."""
        config, path = self.config(), self.path("plan.json")
        command = os.path.join(shared.ARGUMENTS.examples_dir, "..", "src", "quadrille")
        subprocess.run([command, "plan", config, "-n", "4", "--machine", "laptop", "--batch", "8", "--seq", "16",
                        "--dtype", "f32", "--recompute", "none", "-o", path],
                       check=True, capture_output=True, timeout=60)
        _, talk = self.train_by_plan("--plan", path, "--local", "4")
        plan = json.loads(self.read(path))
        self.assertEqual(plan["sizes"], {**shared.SIZES, "norm_epsilon": 1e-05})
        self.assertIn("grid " + "x".join(map(str, plan["grid"])), talk)
        self.assertRegex(talk, r"made for gpt2 on laptop: \S+ s per step predicted")
        _, talk = self.train_by_plan("--plan", path, "--local", "4", "--batch", "12", "--dtype", "f64")
        self.assertIn("made for gpt2 on laptop, but here type is f64, not f32; batch is 12, not 8\n", talk)
        done = shared.run("transformer_layer", "--plan", path, "--local", "4", "--iterations", "1", "--json")
        self.assertEqual(done.returncode, 0, done.err)
        self.assertEqual([json.loads(done.stdout)[key] for key in ("ctx", "hidden", "heads")], [16, 24, 3])

    def test_auto(self):
        for machine in ("laptop", "dgx-a100"):
            words = ("--batch", "6", "--ctx", "8", "--dtype", "f64" if machine == "laptop" else "f32")
            lines, talk = self.train_by_plan(*words, "--grid", "auto", "--local", "4", "--machine", machine)
            grid, order, layout, micro, secs, named = self.chosen.search(talk).groups()
            self.assertEqual(shared.ranks_of(grid), 4)
            self.assertEqual(named, machine)
            self.assertGreater(float(secs), 0)
            expected = self.by_hand(*words, "--order", order, "--layout", layout, "--micro-batch", micro, grid=grid)
            self.assert_same_losses(lines, expected, 1e-9 if machine == "laptop" else 1e-4)

    def test_auto_keeps_what_was_given(self):
        _, talk = self.train_by_plan("--grid", "auto", "--local", "4", "--layout", "scattered", "--order", "dxzy",
                                     "--micro-batch", "2", "--batch", "8", "--ctx", "8")
        _, order, _, micro, _, _ = self.chosen.search(talk).groups()
        self.assertEqual((order, micro), ("dxzy", "2"))

    def test_auto_of_a_layer(self):
        done = shared.run("transformer_layer", "--grid", "auto", "--local", "4", "--hidden", "64", "--ctx", "16",
                   "--iterations", "1", "--json", before=("env", "QDR_MACHINE=dgx-h100"))
        self.assertEqual(done.returncode, 0, done.err)
        grid, order, _, _, _, named = self.chosen.search(done.err).groups()
        result = json.loads(done.stdout)
        self.assertEqual((result["grid"], result["order"], result["batch"], named), (grid, order, 4, "dgx-h100"))

    def test_mpi(self):
        if not shared.ARGUMENTS.mpiexec:
            self.skipTest("no MPI in this build")
        before = (shared.ARGUMENTS.mpiexec, "-n", "4")
        _, talk = self.train_by_plan("--grid", "auto", "--ctx", "8", before=before)
        self.assertEqual(len(self.chosen.findall(talk)), 1, talk)
        path = self.plan()
        self.train_by_plan("--plan", path, before=(shared.ARGUMENTS.mpiexec, "-n", "2"))


if __name__ == "__main__":
    cases.main("examples_dir", "--mpiexec")
