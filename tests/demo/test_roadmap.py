#!/usr/bin/env python3
"""The ladder's rungs against closed forms, two of them run, and what its table calls wrong.

  python3 -B test_roadmap.py FOLDER_OF_PROGRAMS
"""

import copy
import os
import sys
import tempfile
import unittest
from pathlib import Path

import demo
import roadmap

SOURCES = Path(__file__).resolve().parents[2]
MODEL = "scenarios/models/demo-hybrid.yaml"
FP32 = 4  # bytes; weights, gradients and each of Adam's two moments
STATES = 4 * FP32
RANKS = 2
MICROBATCHES = 4  # of each of two data-parallel ranks: 16 sequences, 2 at once


def rank_states(rank):
    return rank["parameter_bytes"] + rank["gradient_bytes"] + rank["optimizer_bytes"]


class Rungs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.chdir(SOURCES)  # what roadmap.py's paths begin from
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.plan = {rung: Path(cls.folder.name) / f"{rung}.json" for rung in roadmap.RUNGS}
        cls.prediction = {}
        for rung, plan in cls.plan.items():
            demo.ask("plumb", "plan", roadmap.scenario(rung), "-o", plan)
            cls.prediction[rung] = demo.ask("plumb", "simulate", plan)
        cls.parameters = demo.ask("plumb", "show", MODEL)["parameters"]

    def states(self, rung):
        return sum(rank_states(rank) for rank in self.prediction[rung]["ranks"])

    def received(self, rung):
        return roadmap.most(self.prediction[rung]["ranks"], "received_bytes")

    def test_every_rung_of_the_folder_is_climbed(self):
        files = sorted(path.stem for path in (SOURCES / roadmap.FOLDER).glob("*.yaml"))
        self.assertEqual(files, sorted(roadmap.RUNGS))
        self.assertEqual(files, sorted(roadmap.TITLES))

    def test_states_are_whole_shared_out_or_a_stage(self):
        whole = self.parameters * STATES
        self.assertEqual(self.states("1-ddp"), whole)
        for rung in ("2-zero3", "3-fsdp2"):  # a part is of whole elements of each weight
            self.assertAlmostEqual(self.states(rung) / (whole / RANKS), 1, delta=1e-5)
        for rung in ("4-pipeline-uniform", "5-pipeline-dynamic"):
            self.assertEqual(self.states(rung), whole)
        # Of each tensor group's two ranks one is told; norms and what is not divided are on both.
        self.assertAlmostEqual(self.states("6-tensor") / (whole / 2), 1, delta=0.01)
        frozen = sum(rank["parameter_bytes"] for rank in self.prediction["7-lora"]["ranks"])
        trained = sum(rank["gradient_bytes"] for rank in self.prediction["7-lora"]["ranks"])
        self.assertEqual(frozen - trained, self.parameters * FP32)
        self.assertLess(trained, 0.1 * frozen)

    def test_bytes_are_those_of_the_papers(self):
        part = self.parameters * FP32 * (RANKS - 1) / RANKS
        self.assertEqual(self.received("1-ddp"), 2 * part)  # a ring's all-reduce
        for rung in ("2-zero3", "3-fsdp2"):  # two gathers and a reduction in each microbatch (arXiv 1910.02054, 7.2.2)
            self.assertEqual(self.received(rung), 3 * part * MICROBATCHES)
        sequence, hidden, batch = 128, 256, 16
        for rung in ("4-pipeline-uniform", "5-pipeline-dynamic", "7-lora"):  # each sequence's boundary, one way
            self.assertEqual(self.received(rung), batch * sequence * hidden * FP32)
        self.assertGreater(self.received("6-tensor"), self.received("5-pipeline-dynamic"))

    def test_a_split_by_cost_and_frozen_weights_take_less_time(self):
        step = {rung: of["iteration_s"] for rung, of in self.prediction.items()}
        self.assertLess(step["5-pipeline-dynamic"], 0.9 * step["4-pipeline-uniform"])
        self.assertLess(step["7-lora"], step["5-pipeline-dynamic"])
        self.assertLess(step["3-fsdp2"], step["2-zero3"])

    def test_runs_are_as_predicted(self):
        for rung in ("3-fsdp2", "5-pipeline-dynamic"):
            quarter, plan = (self.plan[rung].with_suffix(f".quarter.{of}") for of in ("yaml", "json"))
            quarter.write_text(roadmap.scenario(rung).read_text().replace("global_batch: 16", "global_batch: 4"))
            demo.ask("plumb", "plan", quarter, "-o", plan)
            run = demo.ask("plumb-exec", "run", plan, "--steps", 1, "--warm-up", 0, "--check")
            times = {"predicted_s": 1, "measured_s": 1, "replay_s": 1, "moved_fraction": 0, "inconclusive": False,
                     "uneven_profile": False}
            row = roadmap.median_row([roadmap.row_of(demo.ask("plumb", "simulate", plan), run, times)])
            self.assertEqual(roadmap.faults({rung: row}), [])
            self.assertGreater(row["measured_received_bytes"], 0)


def measured():
    return {"ranks": 2, "predicted_s": 2.0, "measured_s": 2.5, "off_fraction": -0.2, "replay_off_fraction": 0.0,
            "predicted_to_first": 0.8, "measured_to_first": None, "moved_fraction": 0.01, "inconclusive": False,
            "predicted_peak_bytes": 1000, "measured_peak_bytes": 1000, "predicted_received_bytes": 64,
            "measured_received_bytes": 64, "passed": True}


class TheTable(unittest.TestCase):
    def faults(self, **changed):
        rows = [measured(), measured() | changed, measured()]
        return roadmap.faults({"1-ddp": roadmap.median_row(copy.deepcopy(rows))})

    def test_times_are_told_and_not_judged(self):
        self.assertEqual(self.faults(), [])
        self.assertEqual(self.faults(measured_s=9.0, off_fraction=-0.8, moved_fraction=0.5, inconclusive=True), [])

    def test_one_round_is_enough_to_be_wrong(self):
        for changed in ({"passed": False}, {"measured_peak_bytes": 1100}, {"measured_peak_bytes": 940},
                        {"measured_received_bytes": 68}):
            self.assertEqual(len(self.faults(**changed)), 1)

    def test_a_machine_that_moved_in_any_round_is_marked(self):
        rows = [measured(), measured() | {"moved_fraction": 0.3, "inconclusive": True}]
        row = roadmap.median_row(rows)
        self.assertEqual(row["moved_fraction"], 0.3)
        self.assertIn("30.0% !", roadmap.table({"1-ddp": row}))
        self.assertIn("| -20.0% |  |", roadmap.table({"1-ddp": row}))
        self.assertNotIn("!", roadmap.table({"1-ddp": roadmap.median_row([measured()])}))


if __name__ == "__main__":
    demo.BIN = Path(sys.argv.pop()).resolve()
    unittest.main()
