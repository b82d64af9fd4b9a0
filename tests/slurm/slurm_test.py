#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real Slurm on this machine: one controller and two node daemons, started and stopped by this test, whose jobs are
those that docs/cluster.md and docs/checkpoint.md describe.

usage: slurm_test.py BUILD_DIR [SCENE...]     scenes: start, doctor, limit, cancel, kill,
                                               lost, error; without any: all

Needs root, slurm-wlm and munge; without them it says so and exits with 77. Uses its own keys, ports and folder, not
those of a Slurm that this machine may have.
"""
import json
import os
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NEEDED = ["slurmctld", "slurmd", "munged", "srun", "sbatch", "scancel", "scontrol", "squeue"]
CONFIGURATION = """\
ClusterName=quadrille
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=15
SlurmdParameters=config_overrides
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{node_port}-{last_port}] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""
# Small, so that a run's length is its number of steps.
SMALL = ["--layers", "1", "--hidden", "32", "--heads", "4", "--ctx", "16", "--batch", "4", "--sample", "0",
         "--val-windows", "2", "--grid", "2x2x1x1"]


def say(text):
    print(text, flush=True)


def free_ports(n):
    """The first of n consecutive ports on which nobody listens."""
    for first in range(21817, 31817, 10):
        try:
            for port in range(first, first + n):
                with socket.socket() as trial:
                    trial.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise OSError(f"no {n} consecutive ports are free")


def wait_for(what, condition, secs):
    end = time.monotonic() + secs
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.2)
    raise AssertionError(f"{what}: not after {secs} s")


class Cluster:
    def __init__(self, folder):
        self.folder = folder
        port = free_ports(3)
        self.configuration = os.path.join(folder, "slurm.conf")
        with open(self.configuration, "w", encoding="ascii") as out:
            out.write(CONFIGURATION.format(folder=folder, host=socket.gethostname(), port=port, node_port=port + 1,
                                           last_port=port + 2))
        self.environment = dict(os.environ, SLURM_CONF=self.configuration, OPENBLAS_NUM_THREADS="1")
        for name in [name for name in self.environment if name.startswith(("PMI_", "SLURM_JOB"))]:
            del self.environment[name]
        self.daemons = []

    def start(self):
        path = lambda name: os.path.join(self.folder, name)
        for name in ("state", "spool.n1", "spool.n2"):
            os.mkdir(path(name))
        with open(path("munge.key"), "wb") as key:
            key.write(os.urandom(1024))
        os.chmod(path("munge.key"), 0o400)
        self.daemon("munged", "--foreground", "--force", f"--key-file={path('munge.key')}",
                    f"--socket={path('munge.socket')}", f"--pid-file={path('munge.pid')}",
                    f"--log-file={path('munge.log')}", f"--seed-file={path('munge.seed')}")
        wait_for("munged", lambda: os.path.exists(path("munge.socket")), 20)
        self.daemon("slurmctld", "-D")
        self.daemon("slurmd", "-D", "-N", "n1")
        self.daemon("slurmd", "-D", "-N", "n2")
        wait_for("two idle nodes", lambda: self.run("sinfo", "-h", "-o", "%D %t").stdout.split() == ["2", "idle"], 60)

    def daemon(self, *words):
        with open(os.path.join(self.folder, f"{words[0]}.out"), "ab") as out:
            self.daemons.append(subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=out,
                                                 stderr=out, start_new_session=True))

    def stop(self):
        if len(self.daemons) > 1:
            self.run("scancel", "--full", "--signal=KILL", "--user=root")
            time.sleep(1)
        for process in reversed(self.daemons):
            process.terminate()
        for process in reversed(self.daemons):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()

    def run(self, *words, limit=120):
        return subprocess.run(words, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=limit, check=False, cwd=self.folder)

    def show_logs(self):
        for name in sorted(os.listdir(self.folder)):
            if name.endswith(".log"):
                with open(os.path.join(self.folder, name), encoding="utf-8", errors="replace") as log:
                    say(f"---- {name}\n" + "".join(log.readlines()[-30:]))


class Scenes:
    """Each prints what its jobs printed. `check` says what is wrong."""

    def __init__(self, cluster, build):
        self.cluster = cluster
        self.linear = os.path.join(build, "examples", "linear")
        self.train = os.path.join(build, "examples", "train")
        self.quadrille = os.path.join(build, "src", "quadrille")
        self.text = os.path.join(cluster.folder, "text")
        with open(self.text, "w", encoding="ascii") as out:
            out.write("the quick brown fox jumps over the lazy dog\n" * 400)

    def at(self, name):
        return os.path.join(self.cluster.folder, name)

    @staticmethod
    def check(condition, sentence):
        if not condition:
            raise AssertionError(sentence)

    def srun(self, *words, limit=120):
        done = self.cluster.run("srun", *words, limit=limit)
        say(f"$ srun {' '.join(words)}\n{done.stdout}{done.stderr}exit code {done.returncode}")
        return done

    def ckpt_step(self, path):
        """The step that a whole file has."""
        done = self.cluster.run(self.quadrille, "ckpt", "verify", path)
        self.check(done.returncode == 0, f"{path}: {done.stdout}{done.stderr}")
        listed = json.loads(self.cluster.run(self.quadrille, "ckpt", "ls", path, "--json").stdout)
        return json.loads(listed["metadata"]["note"])["step"]

    def logged(self, name):
        """The lines about steps of a run's log, by step."""
        try:
            with open(self.at(name), encoding="utf-8") as log:
                lines = [json.loads(line) for line in log if line.endswith("\n")]
        except FileNotFoundError:
            return {}
        return {line["step"]: line for line in lines if "step" in line}

    def pids(self):
        return self.cluster.run("pgrep", "-f", f"^{re.escape(self.train)} ").stdout.split()

    def pid_of_rank(self, rank):
        for pid in self.pids():
            with open(f"/proc/{pid}/environ", "rb") as environment:
                if f"SLURM_PROCID={rank}".encode() in environment.read().split(b"\0"):
                    return int(pid)
        raise AssertionError(f"no process is rank {rank}")

    def expect_no_processes(self):
        wait_for("an end of all processes", lambda: not self.pids(), 60)

    def state(self, job):
        text = self.cluster.run("scontrol", "show", "job", job).stdout
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def batch(self, name, script, *options):
        with open(self.at(name + ".sh"), "w", encoding="utf-8") as out:
            out.write(script)
        done = self.cluster.run("sbatch", "--parsable", "--output=" + self.at(name + ".txt"), *options,
                                self.at(name + ".sh"))
        self.check(done.returncode == 0, done.stderr)
        return done.stdout.strip()

    def output(self, name):
        try:
            with open(self.at(name + ".txt"), encoding="utf-8") as text:
                return text.read()
        except FileNotFoundError:
            return ""

    def started(self, name, *options):
        """A job that trains until somebody ends it, and has begun to."""
        words = [self.train, self.text, *SMALL, "--steps", "10000000", "--save", self.at(name + ".safetensors"),
                 "--log", self.at(name + ".jsonl"), *options]
        job = self.batch(name, f"#!/bin/sh\nexec srun --mpi=pmi2 --kill-on-bad-exit=1 {shlex.join(words)}\n",
                         "--nodes=2", "--ntasks-per-node=2")
        wait_for("the first steps", lambda: len(self.logged(name + ".jsonl")) > 20, 120)
        return job

    def saved(self, name):
        """One that has saved, too."""
        job = self.started(name, "--save-every", "20", "--val-every", "50")
        wait_for("a first save", lambda: os.path.exists(self.at(name + ".safetensors")), 60)
        return job

    def ended(self, job, name, state, exit_code=None):
        """All processes end, and the job in this state; exit_code None: any."""
        self.expect_no_processes()
        wait_for("the end of the job", lambda: self.state(job)["JobState"] not in ("RUNNING", "COMPLETING"), 60)
        say(self.output(name) + self.state(job)["ExitCode"])
        code = self.state(job)["ExitCode"]
        self.check(self.state(job)["JobState"] == state and exit_code in (None, code),
                   f"the job did not end as {state} with exit code {exit_code or 'any'}: {self.state(job)}")

    # ---- the scenes ----

    def start(self):
        """srun starts four ranks on two nodes, with pmi2; without it the ranks are told what to do."""
        done = self.srun("--nodes=2", "--ntasks-per-node=2", "--mpi=pmi2", self.linear, "--mpi")
        self.check(done.returncode == 0 and done.stdout.count("of 4 owns") == 4, "linear did not run on four ranks")
        done = self.srun("--nodes=2", "--ntasks-per-node=2", "--mpi=pmi2", self.train, self.text, *SMALL, "--steps",
                         "5")
        self.check(done.returncode == 0 and "2x2x1x1" in done.stdout + done.stderr, "train did not run")
        for words in ([self.linear, "--mpi"], [self.train, self.text, *SMALL, "--steps", "5"]):
            done = self.srun("--nodes=2", "--ntasks-per-node=2", "--mpi=none", *words)
            self.check(done.returncode == 1 and "srun --mpi=pmi2" in done.stderr,
                       "ranks that do not know of each other were not told to use srun --mpi=pmi2")

    def doctor(self):
        """The ranks of srun meet: one row, since both daemons are on one host. Without pmi2, a report of each."""
        srun = ["--nodes=2", "--ntasks-per-node=2", "--mpi=pmi2", self.quadrille, "doctor"]
        done = self.srun(*srun)
        self.check("1 node, 4 ranks;" in done.stdout and done.stdout.count("\n" + socket.gethostname() + " ") == 1,
                   "there is not one row for one host")
        done = self.srun(*srun, "--json")
        report = json.loads(done.stdout)
        self.check([node["ranks"] for node in report["nodes"]] == [[0, 1, 2, 3]], "not the four ranks of srun")
        self.check(done.returncode == (0 if report["works"] else 1), f"exit code {done.returncode}")
        srun[2] = "--mpi=none"
        done = self.srun(*srun)
        self.check(done.returncode == 1 and "quadrille doctor --each" in done.stderr,
                   "processes that do not know of each other were not told to use --each")
        done = self.srun(*srun, "--each")
        self.check(len(re.findall(r"; \d+ notes?$", done.stdout, re.M)) == 4, "there are not four reports")

    def limit(self):
        """The batch script of docs/checkpoint.md, with a time limit that is too short for its steps."""
        with open(os.path.join(TOP, "docs", "checkpoint.md"), encoding="utf-8") as page:
            script = re.search(r"```sh\n(#!/bin/bash\n#SBATCH.*?)```", page.read(), re.DOTALL).group(1)
        # Slurm looks at limits twice a minute, and 30 s ahead: the signal comes between 25 and 55 s after the start.
        for before, after in (("--nodes=4 --ntasks-per-node=8 --time=04:00:00",
                               "--nodes=2 --ntasks-per-node=2 --time=00:01:00"),
                              ("USR1@120", "USR1@5"),
                              ("--grid 2x2x2x4", shlex.join([self.text, *SMALL, "--log", self.at("run.jsonl")]))):
            self.check(before in script, f"docs/checkpoint.md's script has no '{before}'")
            script = script.replace(before, after)
        environment = self.cluster.environment
        environment["SCRATCH"] = self.cluster.folder
        programs = os.path.dirname(self.train) + ":" + os.path.dirname(self.quadrille)
        environment["PATH"] = programs + ":" + environment["PATH"]
        trial = self.srun("--nodes=2", "--ntasks-per-node=2", "--mpi=pmi2", self.train, self.text, *SMALL, "--steps",
                          "200", "--log", self.at("trial.jsonl"))
        self.check(trial.returncode == 0, "the trial failed")
        steps = int(200 * 70 / self.logged("trial.jsonl")[200]["secs"])
        restarts = self.queued_again(script, steps)
        if not restarts:
            say(f"{steps} steps took less than the limit: once more, with four times as many")
            steps *= 4
            restarts = self.queued_again(script, steps)
        self.check(restarts > 0, "the job was not queued again")
        unbroken = self.srun("--nodes=2", "--ntasks-per-node=2", "--mpi=pmi2", self.train, self.text, *SMALL,
                             "--steps", str(steps), "--save", self.at("unbroken.safetensors"), "--save-every", "500",
                             "--log", self.at("unbroken.jsonl"), limit=900)
        self.check(unbroken.returncode == 0, "the unbroken run failed")
        self.compare_losses(steps)
        same = self.cluster.run(self.quadrille, "ckpt", "diff", self.at("run.safetensors"),
                                self.at("unbroken.safetensors"))
        say(same.stdout + same.stderr)
        self.check(same.returncode == 0, "the weights differ from those of the unbroken run")

    def queued_again(self, script, steps):
        """Runs the job to its end. Returns how often it was queued again."""
        for name in os.listdir(self.cluster.folder):
            if name.startswith(("run.", "limit.")):
                os.unlink(self.at(name))
        script = script.replace("100000", str(steps))
        say(f"$ sbatch, {steps} steps\n{script}")
        job = self.batch("limit", script)
        restarts = lambda: int(self.state(job).get("Restarts", "0"))
        is_over = lambda: self.state(job)["JobState"] in ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED")
        wait_for("a job that has been queued again", lambda: restarts() or is_over(), 180)
        if restarts():
            step = self.ckpt_step(self.at("run.safetensors"))
            say(f"queued again after step {step}")
            self.check(0 < step < steps, f"step {step} of {steps} was saved at the signal")
        wait_for("the end of the job", is_over, 600)
        say(self.output("limit"))
        self.check(self.state(job)["JobState"] == "COMPLETED", str(self.state(job)))
        return restarts()

    def compare_losses(self, steps):
        """Each step of the job, from its youngest log that has it, with the same step of the unbroken run."""
        older = [name for name in os.listdir(self.cluster.folder) if re.fullmatch(r"run\.jsonl\.\d+", name)]
        self.check(older, "the job has one log only")
        continued = {}
        for log in [*sorted(older, key=lambda name: int(name.rpartition(".")[2])), "run.jsonl"]:  # .1 is the oldest
            continued.update(self.logged(log))
        unbroken = self.logged("unbroken.jsonl")
        self.check(sorted(continued) == sorted(unbroken) == list(range(1, steps + 1)), "a log lacks steps")
        losses = lambda log: [(log[step]["loss"], log[step].get("val_loss")) for step in sorted(log)]
        self.check(losses(continued) == losses(unbroken), "the losses differ from those of the unbroken run")
        say(f"{steps} losses of {1 + len(older)} logs are those of the unbroken run")

    def cancel(self):
        """scancel: the run saves and ends; SIGUSR1 to the step alone does the same, with exit code 0."""
        for name, words, state, exit_code in (("cancelled", [], "CANCELLED", None),
                                              ("signalled", ["--signal=USR1"], "COMPLETED", "0:0")):
            job = self.started(name)
            self.check(not os.path.exists(self.at(name + ".safetensors")), "it has saved before the signal")
            self.cluster.run("scancel", *words, job)
            self.ended(job, name, state, exit_code)
            step, last = self.ckpt_step(self.at(name + ".safetensors")), max(self.logged(name + ".jsonl"))
            self.check(step == last, f"step {step} was saved, and the last one was {last}")

    def kill(self):
        """A killed step leaves no process, and the file of its last save."""
        job = self.saved("killed")
        self.cluster.run("scancel", "--signal=KILL", job + ".0")
        self.ended(job, "killed", "FAILED", "137:0")
        self.ckpt_step(self.at("killed.safetensors"))

    def lost(self):
        """One rank is killed: the others do not wait for it, and the exit code is that of SIGKILL."""
        job = self.saved("lost")
        os.kill(int(self.pids()[-1]), signal.SIGKILL)
        self.ended(job, "lost", "FAILED", "137:0")
        self.ckpt_step(self.at("lost.safetensors"))

    def error(self):
        """One rank cannot write any more: all end with 1, and what was saved before is whole. Wrong options end with
        2."""
        job = self.saved("error")
        resource.prlimit(self.pid_of_rank(0), resource.RLIMIT_FSIZE, (100000, 100000))
        self.ended(job, "error", "FAILED", "1:0")
        self.check("File too large" in self.output("error"), "rank 0 does not say why it failed")
        self.check(self.ckpt_step(self.at("error.safetensors")) % 20 == 0, "not a step of a save before")
        done = self.srun("--nodes=2", "--ntasks-per-node=2", "--mpi=pmi2", self.train, self.at("no-such-text"), *SMALL)
        self.check(done.returncode == 2, f"a text that is not there: exit code {done.returncode}")
        done = self.srun("--nodes=2", "--ntasks-per-node=2", "--mpi=pmi2", self.train, "--no-such-option")
        self.check(done.returncode == 2, f"an unknown option: exit code {done.returncode}")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    missing = [name for name in NEEDED if not shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
    if os.geteuid() != 0 or missing:
        print("needs root" if not missing else f"not installed: {' '.join(missing)} (packages slurm-wlm, munge)")
        sys.exit(77)
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    names = sys.argv[2:] or ["start", "doctor", "limit", "cancel", "kill", "lost", "error"]
    with tempfile.TemporaryDirectory(prefix="quadrille-slurm-") as folder:
        cluster = Cluster(folder)
        failed = []
        try:
            cluster.start()
            scenes = Scenes(cluster, os.path.abspath(sys.argv[1]))
            for name in names:
                scene = getattr(scenes, name)
                begin = time.monotonic()
                say(f"==== {name}: {scene.__doc__}")
                try:
                    scene()
                except (AssertionError, subprocess.TimeoutExpired) as error:
                    failed.append(name)
                    say(f"FAILED: {error}")
                say(f"==== {name}: {'FAILED' if name in failed else 'ok'}, {time.monotonic() - begin:.0f} s")
        finally:
            if failed or sys.exc_info()[0]:
                cluster.show_logs()
            cluster.stop()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
