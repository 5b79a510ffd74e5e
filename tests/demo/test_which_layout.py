#!/usr/bin/env python3
"""The tables of docs/reference/which-layout.md are what the simulator says, and each row's reason is the larger difference.

  python3 -B test_which_layout.py FOLDER_OF_PROGRAMS
"""

import os
import sys
import unittest
from pathlib import Path

import which_layout

SOURCES = Path(__file__).resolve().parents[2]
PLUMB = "plumb"
MIB = 2**20


def row(kind="1d", **changed):
    layer = {"forward_bytes": 4 * MIB, "input_gradient_bytes": 4 * MIB, "weight_gradient_bytes": 2 * MIB,
             "across_machines_bytes": 3 * MIB}
    return {"kind": kind, "depth": 1, "sequence_parallel": False, "asynchronous": False,
            "reshard_after_forward": False, "built": True, "fits": True, "reason": "",
            "microbatch": 2, "recompute": "none", "iteration_s": 3.0, "exposed_communication_s": 1.0,
            "tensor_communication_s": 1.0, "tensor_exposed_s": 1.0, "peak_bytes": 40 * 2**30, "layer": layer} | changed


def cells(*rows):
    return which_layout.cells({"layouts": list(rows), "memory_bytes": 74 * 2**30})


class Reasons(unittest.TestCase):
    def test_waiting_or_computing_whichever_differs_more(self):
        small = {"forward_bytes": MIB, "input_gradient_bytes": MIB, "weight_gradient_bytes": 0,
                 "across_machines_bytes": 0}
        waits = row("2d", exposed_communication_s=0.5, layer=small)
        fastest, step, beside, why = cells(waits, row(iteration_s=3.6))  # 0.5 s more of waiting, 0.1 s of computing
        self.assertEqual((fastest, step, beside), ("2d", "3 s", "1d +20.0%"))
        self.assertEqual(why, "waits 500 ms, not 1 s; receives 1 MiB, not 5 MiB, "
                              "1.5 MiB of it between machines")
        computes = row(iteration_s=3.9, exposed_communication_s=1.2, recompute="full")  # 0.2 s and 0.7 s
        self.assertEqual(cells(row("3d"), computes)[3], "computes 2 s, not 2.7 s: recompute none, not full, fits")
        wider = row("3d", microbatch=8)
        self.assertEqual(cells(wider, row(iteration_s=3.9))[3], "computes 2 s, not 2.9 s: matmuls of 8 sequences, not 2")

    def test_more_bytes_in_less_time_are_hidden(self):
        hides = row(sequence_parallel=True, exposed_communication_s=0.4, tensor_exposed_s=0.4,
                    layer=row()["layer"] | {"forward_bytes": 6 * MIB})
        self.assertIn("not 1 s, and hides 600 ms more; receives", cells(hides, row("2d"))[3])

    def test_what_does_not_fit_or_cannot_be_is_no_rival(self):
        large = row("2d", fits=False, peak_bytes=80 * 2**30, iteration_s=1.0)
        none = row("3d", built=False, reason="a 3d tensor layout needs q³ ranks, not 4")
        self.assertEqual(cells(row(), large, none)[2:], ("grids: none fits", "2d needs 80 GiB of 74 GiB, 1d 40 GiB"))
        self.assertEqual(cells(row(), none)[2:], ("grids: none", none["reason"]))
        self.assertEqual(cells(large)[0::3], ("none fits", "2d needs least, 80 GiB of 74 GiB"))


class ThePage(unittest.TestCase):
    def test_its_tables_are_what_the_simulator_says(self):
        os.chdir(SOURCES)  # what which_layout.py's paths begin from
        page = Path("docs/reference/which-layout.md").read_text()
        begin = page.index("## " + which_layout.MACHINES[0])
        self.assertEqual(page[begin:], which_layout.tables(PLUMB))


if __name__ == "__main__":
    PLUMB = Path(sys.argv.pop()).resolve() / "plumb"
    unittest.main()
