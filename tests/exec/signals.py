#!/usr/bin/env python3
"""Trials of plumb-exec under signals: SIGSTOP, SIGINT, SIGTERM and SIGKILL at random moments from the first 100 ms on.

Each trial starts a run, a comparison or a calibration, sends one signal to a rank, to the launcher or, as a terminal
does, to all of them, and checks the end: in time, with status 3, with a message that names who was hit and where each
rank stood, without a half-written file, a process or a port left behind.

    tests/exec/signals.py build/bin --runs 60 --seed 7
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

DEADLINE_S = 4.0  # --deadline of each run
MARGIN_S = 5.0  # beside twice the deadline: for a busy machine to start, notice and end processes
FIRST_S = 0.1  # earliest signal
LAST_S = 6.0  # latest signal
MARK = "PLUMB_TRIAL"

SCENARIO = """
model: {{name: tiny, vocabulary: 256, hidden: 64, heads: 4, ffn: 128, layers: "full/dense*8"}}
cluster: {{machine: local-cpu, ranks: {ranks}}}
training: {{sequence: 64, global_batch: 8, microbatch: 1, precision: fp32, optimizer: adamw}}
layout: {{pipeline: {ranks}}}
schedule: 1f1b
split: uniform
"""


@dataclasses.dataclass
class Trial:
    command: str  # run, compare or calibrate
    transport: str
    ranks: int
    saves: bool
    through_plumb: bool
    signal: signal.Signals
    target: str  # "launcher", "all" or "rank N"
    moment_s: float

    def what(self):
        program = "plumb" if self.through_plumb else "plumb-exec"
        return f"{program} {self.command} {self.transport}{' x' + str(self.ranks)}{' --save' if self.saves else ''}"


@dataclasses.dataclass
class Result:
    trial: Trial
    sent_s: float
    took_s: float
    status: int
    message: str
    problems: list


def random_trial(source):
    command = source.choice(["run", "run", "run", "run", "compare", "calibrate"])
    transport = source.choice(["local", "gloo", "gloo"])
    ranks = source.choice([2, 4])
    kind = source.choice([signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
    targets = ["launcher"]
    if kind == signal.SIGINT:
        targets.append("all")
    if transport == "gloo" and command != "calibrate":
        targets += [f"rank {rank}" for rank in range(ranks)]
    # As many moments in each doubling of time: the first second sees most changes.
    moment = FIRST_S * (LAST_S / FIRST_S) ** source.random()
    return Trial(
        command=command,
        transport=transport,
        ranks=ranks,
        saves=command == "run" and source.random() < 0.5,
        through_plumb=source.random() < 0.3,
        signal=kind,
        target=source.choice(targets),
        moment_s=moment,
    )


def read(path):
    try:
        return pathlib.Path(path).read_bytes()
    except OSError:
        return b""


def state_of(process):
    return read(f"/proc/{process}/stat").rpartition(b")")[2].split()[:1]


def is_alive(process):
    return state_of(process) not in ([], [b"Z"], [b"X"])


def marked(mark):
    """Processes of a trial, by their environment."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and wanted in read(f"/proc/{entry}/environ").split(b"\0") and is_alive(entry):
            found.append(int(entry))
    return found


def variable(process, name):
    for pair in read(f"/proc/{process}/environ").split(b"\0"):
        if pair.startswith(name.encode() + b"="):
            return pair.partition(b"=")[2].decode()
    return ""


def rank_processes(mark, launcher):
    return {int(variable(p, "RANK")): p for p in marked(mark) if p != launcher and variable(p, "RANK")}


def listens(port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(condition, limit_s):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return bool(condition())


def words_of(trial, bins, plans, folder):
    program = str(bins / ("plumb" if trial.through_plumb else "plumb-exec"))
    plan = str(plans / f"plan-{trial.ranks}.json")
    session = ["--transport", trial.transport, "--steps", "100000", "--deadline", str(DEADLINE_S)]
    if trial.command == "run":
        saved = ["--save", "checkpoints", "--save-every", "3", "--keep", "2"] if trial.saves else []
        return [program, "run", plan, *session, "-o", "measured.json", *saved]
    if trial.command == "compare":
        return [program, "compare", plan, plan, *session, "-o", "timelines"]
    scenario = str(plans / f"scenario-{trial.ranks}.yaml")
    return [program, "calibrate", scenario, "--transport", trial.transport, "--rounds", "100000", "-o", "profile.yaml"]


def half_files(folder):
    found = []
    for path in folder.rglob("*"):
        if re.search(r"\.(part\d*|partial|removed)$", path.name):
            found.append(f"left {path.relative_to(folder)}")
        elif path.is_dir() and path.name.startswith("step-") and not (path / "index.json").exists():
            found.append(f"{path.name} has no index")
        elif path.suffix == ".json" and path.name != "index.json":
            try:
                json.loads(path.read_text())
            except ValueError:
                found.append(f"{path.name} is cut")
    return found


def message_problems(trial, err):
    reasons = {signal.SIGINT: "interrupted (SIGINT)", signal.SIGTERM: "told to end (SIGTERM)"}
    problems = []
    if trial.target.startswith("rank"):
        if trial.target not in err:
            problems.append(f"{trial.target} is not named")
        words = {signal.SIGSTOP: "SIGSTOP", signal.SIGKILL: "killed by signal 9"}
        wanted = [words[trial.signal]] if trial.signal in words else [reasons[trial.signal], "killed by signal"]
        if not any(word in err for word in wanted):
            problems.append(f"no '{wanted[0]}'")
    elif trial.signal in reasons and reasons[trial.signal] not in err:
        problems.append(f"no '{reasons[trial.signal]}'")
    if trial.target != "launcher" or trial.signal in reasons:
        stands = [f"rank {rank}: " in err for rank in range(trial.ranks)]
        others = ["no rank had started", "no profile", "whole steps", "results were being written", "results were written"]
        if not all(stands) and not any(words in err for words in others):
            problems.append("states of the ranks are not said")
    if "terminate called" in err or "core dumped" in err:
        problems.append("aborted")
    return problems


def send(trial, process, mark):
    """Sends the signal; returns whether the rank was there."""
    if trial.target == "launcher":
        os.kill(process.pid, trial.signal)
        return True
    if trial.target == "all":
        os.killpg(process.pid, trial.signal)
        return True
    rank = int(trial.target.split()[1])
    wait_until(lambda: rank in rank_processes(mark, process.pid) or process.poll() is not None, 30)
    found = rank_processes(mark, process.pid).get(rank)
    if found is None:
        return False
    os.kill(found, trial.signal)
    return True


def run_trial(number, trial, bins, plans):
    mark = f"{os.getpid()}.{number}"
    limit = 2 * DEADLINE_S + MARGIN_S
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with open(folder / "err", "w") as err, open(folder / "out", "w") as out:
            process = subprocess.Popen(
                words_of(trial, bins, plans, folder),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, MARK: mark},
                start_new_session=True,
            )
        begun = time.monotonic()
        problems = []
        try:
            time.sleep(trial.moment_s)
            there = send(trial, process, mark)
            sent = time.monotonic()
            ports = {int(port) for p in marked(mark) if (port := variable(p, "MASTER_PORT"))}
            if not there:
                problems.append("the rank did not start")
            expected = 3
            if trial.target == "launcher" and trial.signal == signal.SIGKILL:
                expected = -9
            if trial.target == "launcher" and trial.signal == signal.SIGSTOP:
                # Threads stop with it, and go on with it; processes end without it.
                if trial.transport == "gloo" and trial.command != "calibrate":
                    if not wait_until(lambda: not rank_processes(mark, process.pid), limit):
                        problems.append("ranks outlive a stopped launcher")
                else:
                    time.sleep(2 * DEADLINE_S)
                went_on = time.monotonic()
                os.kill(process.pid, signal.SIGCONT)
                if trial.transport == "local" or trial.command == "calibrate":
                    time.sleep(1)
                    if process.poll() is not None:
                        problems.append("did not go on after SIGCONT")
                    else:
                        os.kill(process.pid, signal.SIGINT)
                sent = sent if problems else went_on
            try:
                process.wait(limit)
            except subprocess.TimeoutExpired:
                problems.append(f"still runs after {limit:g} s")
            took = time.monotonic() - sent
            if not wait_until(lambda: not marked(mark), 1.0):
                problems.append(f"left processes {marked(mark)}")
            problems += [f"port {port} is still open" for port in ports if listens(port)]
        finally:
            for left in marked(mark):
                os.kill(left, signal.SIGKILL)
            process.wait()
        text = (folder / "err").read_text(errors="replace")
        if process.returncode != expected:
            problems.append(f"status {process.returncode}, expected {expected}")
        # SIGKILL of the launcher leaves nobody who could tidy up, or speak: the next run removes what is left.
        if expected != -9:
            problems += half_files(folder)
            if not (trial.target == "launcher" and trial.signal == signal.SIGSTOP):
                problems += message_problems(trial, text)
        # An error's lines come after those of the steps.
        start = text.find("plumb-exec: ")
        return Result(trial, sent - begun, took, process.returncode, text[max(start, 0) :], problems)


def make_plans(bins, folder):
    for ranks in (2, 4):
        scenario = folder / f"scenario-{ranks}.yaml"
        scenario.write_text(SCENARIO.format(ranks=ranks))
        plan = folder / f"plan-{ranks}.json"
        subprocess.run([bins / "plumb", "plan", scenario, "-o", plan], check=True, stdout=subprocess.DEVNULL)


def table(results):
    rows = {}
    for result in results:
        target = result.trial.target.split()[0]
        rows.setdefault((result.trial.signal.name, target), []).append(result)
    lines = ["signal   target    trials  failed  first at  slowest end  statuses"]
    for (name, target), group in sorted(rows.items()):
        failed = sum(bool(result.problems) for result in group)
        statuses = ", ".join(str(status) for status in sorted({result.status for result in group}))
        lines.append(
            f"{name:8} {target:9} {len(group):6}  {failed:6}  {min(r.sent_s for r in group):6.2f} s  "
            f"{max(r.took_s for r in group):9.2f} s  {statuses}"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bins", type=pathlib.Path, help="folder of plumb and plumb-exec")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="regular expression: trials whose description matches")
    parser.add_argument("--show", action="store_true", help="print every message")
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it, and hands that on
    source = random.Random(arguments.seed)
    results = []
    with tempfile.TemporaryDirectory() as name:
        plans = pathlib.Path(name)
        bins = arguments.bins.resolve()
        make_plans(bins, plans)
        while len(results) < arguments.runs:
            trial = random_trial(source)
            line = f"{trial.signal.name} to {trial.target} after {trial.moment_s:.2f} s of {trial.what()}"
            if not re.search(arguments.only, line):
                continue
            result = run_trial(len(results), trial, bins, plans)
            results.append(result)
            verdict = "; ".join(result.problems) or "ok"
            print(f"{len(results):3} {line}: ended after {result.took_s:.2f} s: {verdict}", flush=True)
            if result.problems or arguments.show:
                print("    " + result.message[-3000:].rstrip().replace("\n", "\n    "), flush=True)
    print(table(results))
    return 1 if any(result.problems for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
