#!/usr/bin/env python3
"""What the demo's verdict says, and with which exit status it ends: of measurements by hand."""

import copy
import unittest

import demo


def measured():
    """All claims hold: predicted 2 s and 1.5 s a step, and so measured."""
    steps = {"uniform": 2.0, "dynamic": 1.5}
    diff = {
        plan: {"predicted_s": step, "measured_s": step, "replay_s": step, "moved_fraction": 0.01, "inconclusive": False,
               "uneven_profile": False}
        for plan, step in steps.items()
    }
    prediction = {plan: {"iteration_s": step, "ranks": [{"peak_bytes": 1000}]} for plan, step in steps.items()}
    run = {plan: {"ranks": [{"peak_bytes": 1000}], "bitwise_equal": True} for plan in steps}
    return {"prediction": prediction, "run": run, "diff": diff, "comparison": {"ratios": [{"median": 0.75}]}}


def verdict_of(given):
    verdict = demo.Verdict()
    demo.judge(verdict, given["prediction"], given["run"], given["diff"], given["comparison"])
    return verdict


def moved(given):
    given = copy.deepcopy(given)
    for answer in given["diff"].values():
        answer |= {"moved_fraction": 0.3, "inconclusive": True}
    return given


def uneven(given):
    given = copy.deepcopy(given)
    given["diff"]["dynamic"]["uneven_profile"] = True
    return given


class TheVerdict(unittest.TestCase):
    def test_holds(self):
        verdict = verdict_of(measured())
        self.assertTrue(verdict.holds())
        self.assertFalse(verdict.inconclusive())

    def test_times_that_are_off_are_counted_unless_the_machine_has_moved_or_was_uneven(self):
        wrong = []
        for key in ("predicted_s", "replay_s"):
            wrong.append(measured())
            wrong[-1]["diff"]["dynamic"][key] *= 1.2
        for ratio in (0.65, 0.99):
            wrong.append(measured())
            wrong[-1]["comparison"]["ratios"][0]["median"] = ratio
        for given in wrong:
            self.assertFalse(verdict_of(given).holds())
            for disturbed in (moved(given), uneven(given)):
                verdict = verdict_of(disturbed)
                self.assertTrue(verdict.holds())
                self.assertTrue(verdict.inconclusive())

    def test_memory_and_bits_do_not_depend_on_the_machine(self):
        heavy = measured()
        heavy["run"]["uniform"]["ranks"][0]["peak_bytes"] = 1200
        different = measured()
        different["run"]["dynamic"]["bitwise_equal"] = False
        for given in (heavy, different):
            self.assertFalse(verdict_of(given).holds())
            for disturbed in (moved(given), uneven(given)):
                self.assertFalse(verdict_of(disturbed).holds())


if __name__ == "__main__":
    unittest.main()
