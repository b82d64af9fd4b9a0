#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs of train that are saved, stopped, killed and continued: the same losses on any ranks, grid, levels, layout
and type; the file byte by byte, with Python's json and zlib; full disks.

usage: checkpoint_test.py EXAMPLES_DIR [--mpiexec PROGRAM] [--full] [--kills N] [--seed N]
"""
import json
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib

import cases
from cases import ARGUMENTS, ranks_of, start

TINY = ["--layers", "2", "--hidden", "24", "--heads", "3", "--ctx", "8", "--batch", "6", "--val-windows", "3",
        "--val-every", "100", "--sample", "0"]
# grid, options: p = 1, 2, 3, 4, 6, 8, 12; both layouts; levels; weights turned by QDR_TUNE are below
SETTINGS = [("1x1x1x1", ()), ("2x1x1x1", ("--layout", "scattered")), ("1x1x1x2", ("--levels", "zero1")),
            ("1x3x1x1", ()), ("2x1x1x2", ("--levels", "zero2", "--layout", "scattered")),
            ("1x1x2x2", ("--micro-batch", "1"))]
MORE_SETTINGS = [("1x2x2x1", ()), ("3x1x1x2", ("--levels", "zero1", "--overlap", "off")),
                 ("1x2x2x2", ("--layout", "scattered", "--levels", "zero1")), ("2x2x2x1", ()),
                 ("1x1x1x8", ("--levels", "2,4")), ("3x2x1x2", ("--levels", "zero2"))]


def words_of(grid, *words, by_mpi=False):
    program = os.path.join(ARGUMENTS.examples_dir, "train")
    start = [ARGUMENTS.mpiexec, "-n", str(ranks_of(grid)), program] if by_mpi else [program, "--local",
                                                                                    str(ranks_of(grid))]
    return [*start, "--grid", grid, "--threads", "1", *words]


def header_of(path):
    """What a program would read without this project."""
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = file.read(length)
        data = file.read()
    return length, header, data


class Case(cases.Case):
    def setUp(self):
        super().setUp()
        self.text = self.path("text.txt")
        with open(self.text, "w", encoding="ascii") as file:
            file.writelines(f"{i}: {i * i} and {i * 7919 % 1000}\n" for i in range(300))

    def run_words(self, words, code=0, **variables):
        done = start(*words, environment=variables, timeout=300)
        self.assertEqual(done.returncode, code, done.err)
        return done.err

    def train(self, grid, *words, by_mpi=False, code=0, **variables):
        """The losses by step, and what was said."""
        log = self.path("run.jsonl")
        if os.path.exists(log):
            os.unlink(log)
        said = self.run_words(words_of(grid, self.text, "--log", log, *words, by_mpi=by_mpi), code, **variables)
        with open(log, encoding="ascii") as file:
            lines = [line for line in map(json.loads, file) if "loss" in line]
        return {line["step"]: line["loss"] for line in lines}, said

    def check_close(self, losses, expected, bound):
        worst = max(abs(losses[step] - expected[step]) for step in losses)
        self.assertLess(worst, bound)


class Continuing(Case):
    def check_from_everywhere(self, dtype, bound, settings, by_mpi=False):
        words = [*TINY, "--dtype", dtype]
        whole, _ = self.train("1x1x1x1", *words, "--steps", "30")
        file = self.path("a.safetensors")
        for number, (grid, options) in enumerate(settings):
            to_grid, to_options = settings[(number + 1) % len(settings)]
            first, said = self.train(grid, *words, *options, "--steps", "30", "--save", file, "--stop-after", "10",
                                     "--save-background", "off" if number % 2 else "on", by_mpi=by_mpi)
            self.assertIn("saved step 10", said)
            self.assertEqual(sorted(first), list(range(1, 11)))
            self.check_close(first, whole, bound)
            for there, there_options in ((grid, options), (to_grid, to_options)):
                with self.subTest(dtype=dtype, grid=grid, to=there):
                    rest, said = self.train(there, "--resume", file, *there_options, "--val-windows", "3", "--sample",
                                            "0", by_mpi=by_mpi)
                    self.assertEqual(sorted(rest), list(range(11, 31)), said)
                    self.check_close(rest, whole, bound)

    def test_losses_go_on_on_other_ranks(self):
        self.check_from_everywhere("f64", 1e-9, SETTINGS + (MORE_SETTINGS if ARGUMENTS.full else []))

    def test_losses_go_on_in_f32(self):
        self.check_from_everywhere("f32", 1e-4, SETTINGS if ARGUMENTS.full else SETTINGS[2:5])

    def test_losses_go_on_under_mpiexec(self):
        if not ARGUMENTS.mpiexec:
            self.skipTest("no mpiexec")
        self.check_from_everywhere("f64", 1e-9, SETTINGS if ARGUMENTS.full else SETTINGS[4:6], by_mpi=True)

    def test_the_same_plan_has_the_same_bits(self):
        """In all types, from both kinds of saves, with micro-batches, resumed twice."""
        file = self.path("a.safetensors")
        for number, dtype in enumerate(("f32", "f64", "bf16", "f16")):
            options = [*TINY, "--dtype", dtype, "--micro-batch", "1", "--steps", "18"]
            whole, _ = self.train("1x1x2x2", *options, "--levels", "zero1")
            options += ["--save", file, "--save-background", "off" if number % 2 else "on", "--levels", "zero1"]
            parts = [self.train("1x1x2x2", *options, "--stop-after", "6")[0]]
            options += ["--resume", file]
            parts.append(self.train("1x1x2x2", *options, "--stop-after", "6")[0])
            parts.append(self.train("1x1x2x2", *options)[0])
            self.assertEqual(parts[0] | parts[1] | parts[2], whole, dtype)

    def test_turned_weights_and_tied_heads(self):
        tune = self.path("tune.json")
        words = [*TINY, "--dtype", "f64", "--tie", "--steps", "12"]
        file = self.path("a.safetensors")
        whole, _ = self.train("1x1x1x1", *words)
        self.train("2x1x2x1", *words, "--save", file, "--stop-after", "6", QDR_TUNE=tune)
        rest, _ = self.train("1x2x1x1", "--resume", file, "--sample", "0", QDR_TUNE=tune)
        self.check_close(rest, whole, 1e-9)

    def test_another_batch_goes_on_behind_the_last_sequence(self):
        """Without learning, three steps of 2 sequences have the mean loss of one of 6, wherever runs are cut."""
        file = self.path("a.safetensors")
        words = [*TINY, "--dtype", "f64", "--lr", "0", "--save", file]
        whole, _ = self.train("1x1x1x1", *words, "--steps", "6")
        cut, _ = self.train("1x1x1x1", *words, "--steps", "4")
        for grid, steps, after in (("1x1x2x1", "6", 24 + 4), ("2x1x1x1", "10", 24 + 12)):
            cut |= self.train(grid, "--resume", file, "--steps", steps, "--batch", "2", "--save", file)[0]
            note = json.loads(json.loads(header_of(file)[1])["__metadata__"]["note"])
            self.assertEqual((note["step"], note["sequences"]), (int(steps), after))
        means = {step: cut[step] for step in range(1, 5)} | {5: sum(cut[i] for i in (5, 6, 7)) / 3,
                                                            6: sum(cut[i] for i in (8, 9, 10)) / 3}
        self.check_close(means, whole, 1e-12)

    def test_another_text_is_told(self):
        file, other = self.path("a.safetensors"), self.path("other.txt")
        self.train("1x1x1x1", *TINY, "--steps", "2", "--save", file)
        with open(self.text, "rb") as text, open(other, "wb") as copy:
            copy.write(text.read().replace(b"7", b"8"))
        n_bytes, again = os.path.getsize(other), self.path("b.safetensors")
        crcs = [f"{zlib.crc32(self.read_bytes(path)):08x}" for path in (self.text, other)]
        goes_on = ["--resume", file, "--steps", "3", "--sample", "0", "--save", again]
        said = self.run_words(words_of("1x1x1x1", other, *goes_on))
        self.assertIn(f"warning: --resume {file}: until step 2 the run read text.txt ({n_bytes} tokens, checksum "
                      f"{crcs[0]}, no documents); from now on it reads other.txt ({n_bytes} tokens, checksum "
                      f"{crcs[1]}, no documents)\n", said)
        note = json.loads(json.loads(header_of(again)[1])["__metadata__"]["note"])
        self.assertEqual((note["text"], note["text_crc32"], note["tokens"]), ("other.txt", crcs[1], "bytes"))
        for words, warns in ([], False), (["--documents", "10"], True):
            said = self.run_words(words_of("1x1x1x1", other, "--resume", again, *words, "--steps", "4", "--sample", "0",
                                           "--save", file))
            self.assertEqual("documents 10)\n" in said, warns, said)
            self.assertEqual("warning" in said, warns, said)
        said = self.run_words(words_of("1x1x1x1", other, "--resume", file, "--steps", "5", "--sample", "0"))
        self.assertIn(", documents 10); from now on it reads other.txt", said)
        said = self.run_words(words_of("1x1x1x1", "--data", other, "--tokens", "uint16", "--resume", file), 2)
        self.assertEqual(len(said.splitlines()), 1, said)


class Notes(Case):
    def note_of(self, path):
        return json.loads(json.loads(header_of(path)[1])["__metadata__"]["note"])

    def rewrite(self, path, text=None, **members):
        """As Python's json writes it, or another text; without checksums, which this would not fit."""
        _, header, data = header_of(path)
        contents = json.loads(header)
        metadata = contents["__metadata__"]
        for key in "crc32", "header_crc32":
            metadata.pop(key, None)
        metadata["note"] = text or json.dumps(members | json.loads(metadata["note"]) | members)
        header = json.dumps(contents).encode()
        self.write(path, struct.pack("<Q", len(header)) + header + data)

    def test_numbers_out_of_range_are_refused(self):
        first, file = self.path("first"), self.path("a")
        self.train("1x1x1x1", *TINY, "--steps", "2", "--save", first)
        for key, value in (("warmup", -1), ("step", 1e300), ("step", -1), ("steps", 1e15), ("seed", 1.5), ("lr", -1),
                           ("batch", 0), ("sequences", 1e16), ("context", 0), ("warmup", "3")):
            shutil.copy(first, file)
            self.rewrite(file, **{key: value})
            said = self.run_words(words_of("1x1x1x1", self.text, "--resume", file), 2)
            self.assertIn(f'{file}: the note has "{key}": ', said)

    def test_what_is_not_understood_is_refused(self):
        """No default stands in for it. What does not begin as an object is no note of a run."""
        first, file = self.path("first"), self.path("a")
        self.train("1x1x1x1", *TINY, "--steps", "2", "--save", first)
        broken = '{"heads": 3, "lr": 0.5'
        twice = '{"heads": 3, "heads": 4}'
        long = json.dumps({"heads": 3, "about": (1 << 20) * "x"})
        for option, text, says in (("--resume", broken, "its note, line 1: '}' expected"),
                                   ("--load", broken, "its note, line 1: '}' expected"),
                                   ("--load", twice, "its note, line 1: duplicate object key"),
                                   ("--load", long, f"its note has {len(long)} bytes; that of a run has at most"),
                                   ("--resume", "by hand", "the file does not say how far its run was")):
            shutil.copy(first, file)
            self.rewrite(file, text)
            said = self.run_words(words_of("1x1x1x1", self.text, option, file, "--steps", "1", "--heads", "3"), 2)
            self.assertIn(file + ": " + says, said)
        for key, value, says in (("dtype", 5, '"dtype" of the note is not a word of at most 7 bytes'),
                                 ("dtype", "int8", 'the note has "dtype": "int8", which is no type of a run'),
                                 ("text_crc32", 7, '"text_crc32" of the note is not a word')):
            shutil.copy(first, file)
            self.rewrite(file, **{key: value})
            said = self.run_words(words_of("1x1x1x1", self.text, "--resume", file), 2)
            self.assertIn(f"{file}: {says}", said)

    def test_a_note_of_another_writer(self):
        """Blanks, and an object before the members that count."""
        file = self.path("a")
        whole, _ = self.train("1x1x1x1", *TINY, "--steps", "4")
        self.train("1x1x1x1", *TINY, "--steps", "4", "--save", file, "--stop-after", "2")
        self.rewrite(file, about={"step": 1, "heads": 2})
        rest, _ = self.train("1x1x1x1", "--resume", file, "--sample", "0")
        self.assertEqual(rest, {step: whole[step] for step in (3, 4)})

    def test_a_note_of_an_older_release(self):
        """Its number of tokens has another name, by which other data are known, too."""
        file = self.path("a")
        whole, _ = self.train("1x1x1x1", *TINY, "--steps", "4")
        self.train("1x1x1x1", *TINY, "--steps", "4", "--save", file, "--stop-after", "2")
        note = self.note_of(file)
        n_tokens = note.pop("n_tokens")
        for n, warns in (n_tokens, False), (n_tokens - 1, True):
            self.rewrite(file, json.dumps({**note, "text_bytes": n}))
            rest, said = self.train("1x1x1x1", "--resume", file, "--sample", "0")
            self.assertEqual(f"the run read text.txt ({n} tokens, " in said, warns, said)
            self.assertEqual(rest, {step: whole[step] for step in (3, 4)})

    def test_numbers_have_all_their_digits(self):
        """No more than they need."""
        file = self.path("a")
        for lr in 0.003, 0.1 + 0.2, 1 / 3, 2 / 3e3:
            self.train("1x1x1x1", *TINY, "--steps", "1", "--lr", repr(lr), "--clip", "1234.56789", "--save", file)
            metadata = json.loads(header_of(file)[1])["__metadata__"]
            self.assertIn(f'"lr":{lr!r},', metadata["note"])
            self.assertIn('"clip_norm":1234.56789,', metadata["optimizer"])

    def test_load_takes_sizes_only(self):
        file, other = self.path("a"), self.path("b")
        self.train("1x1x1x1", *TINY, "--steps", "1", "--lr", "0.01", "--warmup", "3", "--seed", "9", "--dtype", "f64",
                   "--save", file)
        self.train("1x1x1x1", "--load", file, "--steps", "2", "--save", other, "--sample", "0")
        note = self.note_of(other)
        self.assertEqual([note["config"][key] for key in ("layers", "hidden", "heads")], [2, 24, 3])
        self.assertEqual([note[key] for key in ("batch", "lr", "warmup", "seed", "dtype")], [4, 0.003, 100, 1, "f32"])

    def test_nothing_is_saved_where_nothing_is_trained(self):
        file = self.path("a")
        self.train("1x1x1x1", *TINY, "--steps", "3", "--save", file)
        said = self.run_words(words_of("1x1x1x1", self.text, "--resume", file, "--save", file, "--steps", "2"), code=2)
        self.assertIn("it has 3 steps already, more than --steps 2; give a larger --steps", said)
        for steps in ("0", "3"):
            said = self.run_words(words_of("1x1x1x1", self.text, "--resume", file, "--save", file, "--steps", steps,
                                           "--sample", "0"))
            self.assertIn("has 3 steps; give a larger --steps to train on", said)
            self.assertEqual(self.note_of(file)["steps"], 3)


class Saving(Case):
    def test_saving_changes_no_loss(self):
        words = [*TINY, "--dtype", "f64", "--steps", "8"]
        plain, _ = self.train("1x1x2x2", *words)
        saved, said = self.train("1x1x2x2", *words, "--save", self.path("a"), "--save-every", "1")
        self.assertEqual(plain, saved)
        self.assertEqual(re.findall(r"saved step (\d+)", said), [str(step) for step in range(1, 9)])

    def test_what_is_due_goes_by_the_steps_of_all_runs(self):
        """Saves and validations; but each run stops after as many steps of its own."""
        file, begun = self.path("a"), ()
        due = ["--steps", "14", "--save", file, "--save-every", "4", "--val-every", "4"]
        for stop, steps, saved, validated in ((5, range(1, 6), [4, 5], [4]), (8, range(6, 14), [8, 12, 13], [8, 12]),
                                              (8, range(14, 15), [14], [14])):
            losses, said = self.train("1x1x1x2", *TINY, *begun, *due, "--stop-after", str(stop))
            self.assertEqual(list(losses), list(steps))
            self.assertEqual([int(step) for step in re.findall(r"saved step (\d+)", said)], saved)
            with open(self.path("run.jsonl"), encoding="ascii") as log:
                lines = [line for line in map(json.loads, log) if "step" in line]
            self.assertEqual([line["step"] for line in lines if "val_loss" in line], validated)
            begun = ("--resume", file)

    def test_validations_by_default(self):
        """After each tenth of all steps, rounded up, whichever run has them."""
        file, begun = self.path("a"), ()
        for words, validated in ((["--stop-after", "8"], [3, 6]), ([], [9, 12, 15, 18, 21, 23])):
            self.train("1x1x1x1", *TINY[:-4], "--sample", "0", *begun, "--steps", "23", "--save", file, *words)
            with open(self.path("run.jsonl"), encoding="ascii") as log:
                lines = [line for line in map(json.loads, log) if "val_loss" in line]
            self.assertEqual([line["step"] for line in lines], validated)
            begun = ("--resume", file)

    def test_the_bytes_do_not_depend_on_the_grid(self):
        contents = set()
        for grid, options in SETTINGS:
            options = [word for word in options if word != "--micro-batch" and word != "1"]
            self.run_words(words_of(grid, self.text, *TINY, *options, "--steps", "0", "--save", self.path("a")))
            contents.add(self.read_bytes("a"))
        self.assertEqual(len(contents), 1)

    def test_signals_end_the_step(self):
        file = self.path("a.safetensors")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            words = words_of("1x1x1x2", self.text, *TINY, "--steps", "10000000", "--save", file, "--log",
                             self.path("run.jsonl"))
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, text=True)
            while not os.path.exists(self.path("run.jsonl")) or not os.path.getsize(self.path("run.jsonl")):
                time.sleep(0.01)
            process.send_signal(number)
            said = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, 0, said)
            self.assertIn("stopped; --resume", said)
            os.unlink(self.path("run.jsonl"))
            os.unlink(file)

    def start(self, *words, **variables):
        process = subprocess.Popen(words_of("1x1x1x2", *words), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True, env={**os.environ, **variables})
        self.addCleanup(process.kill)
        return process

    def test_a_signal_before_the_first_step(self):
        """While the text is read, from the program that prints the Bible."""
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        os.chmod(self.path("bible", f"#!/bin/sh\necho 'bible('; cat '{pipe}'\n"), 0o700)
        process = self.start(*TINY, "--steps", "100", "--save", self.path("a"),
                             PATH=self.folder + ":" + os.environ["PATH"])
        with open(pipe, "wb") as to, open(self.text, "rb") as text:
            process.terminate()
            time.sleep(0.3)
            to.write(text.read())
        said = process.communicate(timeout=20)[1]
        self.assertEqual(process.returncode, 0, said)
        self.assertIn("saved step 1 ", said)

    def test_older_files_are_kept(self):
        file = self.path("a")
        self.train("1x1x1x1", *TINY, "--steps", "6", "--save", file, "--save-every", "1", "--keep", "2")
        steps = [json.loads(json.loads(header_of(name)[1])["__metadata__"]["note"])["step"]
                 for name in (file, file + ".1", file + ".2")]
        self.assertEqual(steps, [6, 5, 4])
        self.assertFalse(os.path.exists(file + ".3"))
        self.assertFalse(os.path.exists(file + ".partial"))

    def test_auto_takes_an_older_file_if_one_is_damaged(self):
        file = self.path("a")
        words = ["--save", file, "--resume", "auto", "--sample", "0"]
        self.train("1x1x1x2", *TINY, "--steps", "4", *words, "--save-every", "2", "--keep", "1")
        size = os.path.getsize(file)
        with open(file, "r+b") as damaged:
            damaged.seek(size - 5)
            byte = damaged.read(1)[0]
            damaged.seek(size - 5)
            damaged.write(bytes([byte ^ 4]))
        losses, said = self.train("1x2x1x1", "--steps", "6", *words)
        self.assertIn("is damaged", said)
        self.assertIn("continuing after step 2 of " + file + ".1", said)
        self.assertEqual(sorted(losses), [3, 4, 5, 6])

    def test_auto_begins_with_the_file_of_load(self):
        """Until there is a run to continue."""
        first, file = self.path("first"), self.path("a")
        self.train("1x1x1x1", *TINY, "--steps", "2", "--seed", "3", "--save", first)
        words = ["--load", first, "--save", file, "--resume", "auto", "--sample", "0"]
        begun, said = self.train("1x1x1x2", "--steps", "2", *words)
        self.assertIn("tensors of " + first, said)
        self.assertEqual(sorted(begun), [1, 2])
        losses, said = self.train("1x2x1x1", "--steps", "4", *words)
        self.assertIn("continuing after step 2 of " + file, said)
        self.assertEqual(sorted(losses), [3, 4])
        said = self.run_words(words_of("1x1x1x1", self.text, "--load", first, "--resume", file), 2)
        self.assertIn("--resume continues a run, and --load begins one; leave one of them out", said)

    def damage(self, path):
        with open(path, "r+b") as file:
            file.seek(-3, os.SEEK_END)
            file.write(b"???")

    def test_auto_takes_the_newest_that_is_whole(self):
        """By a link to the file, too, beside which the older ones are."""
        os.mkdir(self.path("there"))
        file, link = self.path("there/a"), self.path("link")
        for name in file, link:
            if name == link:
                os.symlink("there/a", link)
            words = ["--save", name, "--resume", "auto", "--sample", "0"]
            self.train("1x1x1x1", *TINY, "--steps", "8", *words[:2], "--save-every", "2", "--keep", "3")
            self.assertIn(f"{name} has 8 steps", self.run_words(words_of("1x1x1x1", self.text, *words)))
            self.damage(file)
            self.damage(file + ".1")
            said = self.run_words(words_of("1x1x1x1", self.text, *words))
            self.assertEqual(re.findall(r"is damaged.*; trying (\S+)\n", said), [file + ".1", file + ".2"])
            self.assertIn(f"continuing after step 4 of {file}.2\n", said)
            self.damage(file)
            self.damage(file + ".2")
            self.damage(file + ".3")
            said = self.run_words(words_of("1x1x1x1", self.text, *words), 1)
            self.assertEqual(said.count("; trying "), 3)
            self.assertIn(file + ".3: tensor ", said.splitlines()[-1])
        self.assertEqual(sorted(os.listdir(self.path("there"))), ["a", "a.1", "a.2", "a.3"])

    def test_auto_finds_damage_behind_tensors_without_checksums(self):
        file = self.path("a")
        words = ["--save", file, "--resume", "auto", "--sample", "0"]
        self.train("1x1x1x1", *TINY, "--steps", "4", *words[:2], "--save-every", "2", "--keep", "1")
        self.damage(file)
        _, header, data = header_of(file)
        contents = json.loads(header)
        sums = json.loads(contents["__metadata__"]["crc32"])
        last = max((name for name in sums), key=lambda name: contents[name]["data_offsets"][1])
        contents["__metadata__"] |= {"crc32": json.dumps({last: sums[last]}), "header_crc32": 8 * "0"}
        header = json.dumps(contents, separators=(",", ":")).encode()
        header = header.replace(8 * b"0", f"{zlib.crc32(header):08x}".encode(), 1)
        self.write(file, struct.pack("<Q", len(header)) + header + data)
        said = self.run_words(words_of("1x1x1x1", self.text, *words))
        self.assertIn(f"tensor {last} is damaged", said)
        self.assertIn(f"continuing after step 2 of {file}.1", said)

    def test_auto_takes_no_older_file_if_files_cannot_be_opened(self):
        """With any number of open files that is too small."""
        file = self.path("a")
        self.train("1x1x1x2", *TINY, "--steps", "4", "--save", file, "--save-every", "2", "--keep", "1")
        before = self.read_bytes(file)
        refused = 0
        for limit in range(4, 40):
            done = subprocess.run(words_of("1x1x1x2", self.text, "--save", file, "--resume", "auto", "--sample", "0"),
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=60, text=True,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
            self.assertNotIn("trying", done.stderr)
            refused += "Too many open files" in done.stderr and file in done.stderr
        self.assertGreater(refused, 0)
        self.assertEqual(self.read_bytes(file), before)

    def test_auto_takes_an_older_file_if_the_newest_is_gone(self):
        file = self.path("a")
        words = ["--save", file, "--resume", "auto", "--sample", "0"]
        self.train("1x1x1x1", *TINY, "--steps", "4", *words, "--save-every", "2", "--keep", "1")
        os.unlink(file)
        losses, said = self.train("1x1x1x1", "--steps", "5", *words)
        self.assertIn(f"warning: {file} is missing; trying {file}.1", said)
        self.assertEqual(sorted(losses), [3, 4, 5])

    def test_a_file_that_cannot_be_written_is_a_warning(self):
        """The folder vanishes while the run goes on."""
        folder = self.path("folder")
        os.mkdir(folder)
        words = words_of("1x1x1x2", self.text, *TINY, "--steps", "10000000", "--save", os.path.join(folder, "a"),
                         "--log", self.path("run.jsonl"))
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True)
        while not os.path.exists(self.path("run.jsonl")) or not os.path.getsize(self.path("run.jsonl")):
            time.sleep(0.01)
        os.rmdir(folder)
        process.terminate()
        said = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 1, said)
        self.assertIn("warning: step", said)


class Bytes(Case):
    def check_file(self, path):
        length, header, data = header_of(path)
        self.assertEqual((8 + length) % 4096, 0)
        contents = json.loads(header)
        metadata = contents.pop("__metadata__")
        self.assertEqual((metadata["format"], metadata["quadrille"]), ("pt", "1"))
        at = header.index(b'"header_crc32":"') + len(b'"header_crc32":"')
        zeroed = header[:at] + b"00000000" + header[at + 8:]
        self.assertEqual(f"{zlib.crc32(zeroed):08x}", metadata["header_crc32"])
        sums = json.loads(metadata["crc32"])
        end = 0
        for name, tensor in sorted(contents.items(), key=lambda item: item[1]["data_offsets"]):
            begin, stop = tensor["data_offsets"]
            self.assertEqual(begin, end, name)
            self.assertEqual(f"{zlib.crc32(data[begin:stop]):08x}", sums[name], name)
            end = stop
        self.assertEqual(end, len(data))
        return contents, metadata

    def test_the_file(self):
        path = self.path("a.safetensors")
        self.train("2x1x2x2", *TINY, "--dtype", "bf16", "--steps", "3", "--save", path, "--levels", "zero1")
        contents, metadata = self.check_file(path)
        names = [name for name in contents if not name.startswith("optimizer.")]
        self.assertEqual(len(contents), 3 * len(names))
        self.assertEqual({tensor["dtype"] for tensor in contents.values()}, {"F32"})
        self.assertEqual(contents["block0.qkv.weight"]["shape"], [72, 24])
        self.assertEqual(contents["optimizer.v.block1.fc2.bias"]["shape"], [24])
        optimizer = json.loads(metadata["optimizer"])
        self.assertEqual((optimizer["steps_begun"], optimizer["steps_taken"], optimizer["beta2"]), (3, 3, 0.99))
        note = json.loads(metadata["note"])
        self.assertEqual((note["step"], note["sequences"], note["n_tokens"]), (3, 18, os.path.getsize(self.text)))
        self.assertEqual(note["text_crc32"], f"{zlib.crc32(self.read_bytes(self.text)):08x}")

    def test_the_package_of_hugging_face(self):
        try:
            import numpy
            from safetensors import safe_open
            from safetensors.numpy import save_file
        except ImportError:
            self.skipTest("the Python packages safetensors and numpy are not installed")
        path, other = self.path("a.safetensors"), self.path("b.safetensors")
        self.train("1x1x2x2", *TINY, "--dtype", "f64", "--steps", "3", "--save", path)
        with safe_open(path, "numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            sums = json.loads(file.metadata()["crc32"])
        for name, tensor in tensors.items():
            self.assertEqual(f"{zlib.crc32(tensor.tobytes()):08x}", sums[name], name)
        parameters = {name: tensor.astype(numpy.float32) for name, tensor in tensors.items()
                      if not name.startswith("optimizer.")}
        save_file(parameters, other, metadata={"format": "pt"})
        said = [self.run_words(words_of(grid, self.text, "--load", name, "--heads", "3", "--dtype", "f32", "--steps",
                                        "0", "--sample", "0"))
                for grid, name in (("1x1x1x1", path), ("2x2x1x1", other))]
        losses = [float(re.search(r"validation loss ([\d.]+)", words).group(1)) for words in said]
        self.assertAlmostEqual(losses[0], losses[1], delta=2e-4)


class Killing(Case):
    """The process, or one rank, is killed at some time: the file is whole, and the next run goes on."""

    def one_of(self, process, by_mpi):
        if not by_mpi:
            return process.pid
        with subprocess.Popen(["pgrep", "-f", self.path("k.safetensors")], stdout=subprocess.PIPE, text=True) as found:
            pids = [int(pid) for pid in found.communicate()[0].split() if int(pid) != process.pid]
        return random.choice(pids or [process.pid])

    def test_kills(self):
        seed = ARGUMENTS.seed if ARGUMENTS.seed is not None else random.randrange(1 << 30)
        print(f"--seed {seed}", file=sys.stderr)
        random.seed(seed)
        file = self.path("k.safetensors")
        last, first = 0, time.monotonic()
        for number in range(ARGUMENTS.kills):
            grid = random.choice(["1x1x1x1", "1x1x1x2", "2x1x1x1", "1x1x2x1"])
            by_mpi = bool(ARGUMENTS.mpiexec) and number % 3 == 2
            background = random.choice(["on", "off"])
            words = words_of(grid, self.text, *TINY, "--steps", "1000000", "--save", file, "--save-every", "1",
                             "--keep", "1", "--resume", "auto", "--save-background", background, by_mpi=by_mpi)
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, text=True, env=os.environ | {"QDR_TIMEOUT": "20"})
            time.sleep(random.uniform(0.05, 0.6 if not by_mpi else 1.2))
            os.kill(self.one_of(process, by_mpi), signal.SIGKILL)
            said = process.communicate(timeout=120)[1]
            saved = [int(step) for step in re.findall(r"saved step (\d+)", said)]
            self.assertNotIn("damaged", said)
            last = max([last, *saved])
            if last == 0:
                continue
            contents = json.loads(header_of(file)[1])
            Bytes.check_file(self, file)
            step = json.loads(contents["__metadata__"]["note"])["step"]
            self.assertGreaterEqual(step, last, said)
            self.assertLessEqual(step, last + 2, said)
            last = step
        said = self.run_words(words_of("1x1x1x2", self.text, "--resume", "auto", "--save", file, "--steps",
                                       str(last + 2), "--sample", "0"))
        self.assertIn(f"continuing after step {last}", said)
        self.assertFalse(os.path.exists(file + ".partial"))
        print(f"{ARGUMENTS.kills} kills in {time.monotonic() - first:.0f} s, {last} steps", file=sys.stderr)


if __name__ == "__main__":
    cases.main("examples_dir", "--mpiexec", flags=("--full",), kills=8, seed=None)
