#!/usr/bin/env python3
"""Comparison of quoted with real output, and the comments that pages may put before a block."""

import unittest

import test_pages

OUTPUT = """name: a model on 8 ranks
  best  1f1b   [8, 4]   1.284 s  -23.7%  fits
        gpipe  [6, 6]   1.683 s          fits
rank 0 │0000111··aaaa│  89.3% busy
"""


def missing(*quoted, numbers=True):
    return test_pages.missing_line(quoted, OUTPUT, numbers)


class Quotes(unittest.TestCase):
    def test_lines_and_words_may_be_left_out(self):
        self.assertIsNone(missing("  best 1f1b [8, 4] 1.284 s fits"))
        self.assertIsNone(missing("name: a model", "gpipe [6, 6] 1.683 s fits"))

    def test_numbers_words_and_order_count(self):
        self.assertIsNotNone(missing("best 1f1b 1.285 s"))
        self.assertIsNotNone(missing("best zb-h1 1.284 s"))
        self.assertIsNotNone(missing("gpipe 1.683 s", "best 1.284 s"))
        self.assertIsNotNone(missing("fits best"))

    def test_measured_numbers_do_not_count(self):
        self.assertIsNone(missing("best 1f1b 9.999 s fits", numbers=False))
        self.assertIsNotNone(missing("worst 1f1b 1.284 s fits", numbers=False))

    def test_drawings_do_not_count(self):
        self.assertIsNone(missing("rank 0 │1111aaaa··0000│  99.9% busy"))


class Blocks(unittest.TestCase):
    def test_comments_belong_to_the_next_block_alone(self):
        text = "<!-- output: measured -->\n<!-- run: --steps 2, short -->\n```\n$ a\nb\n```\ntext\n```\n$ c\n```\n"
        first, second = test_pages.blocks_of(text, "page")
        self.assertEqual(first.directives, {"output": "measured", "run": "--steps 2, short"})
        self.assertEqual((first.commands(), second.directives), ([("a", ["b"])], {}))

    def test_options_go_to_plumb_exec_alone(self):
        self.assertEqual(test_pages.as_run("plumb-exec run p.json", "--steps 2, short"), "plumb-exec run p.json --steps 2")
        self.assertEqual(test_pages.as_run("plumb show p.json   # a remark", "--steps 2, short"), "plumb show p.json")

    def test_headings_have_githubs_anchors(self):
        self.assertEqual(test_pages.anchor("Keys of `data:` [x](y), and ZeRO++"), "keys-of-data-x-and-zero")


if __name__ == "__main__":
    unittest.main()
