#!/usr/bin/env python3
"""The counts of tests/house/prose.py: each fault is found where it is, and right lines are let through."""
import unittest

import prose


def kinds(text, find=prose.faults_of_code):
    return [kind for kind, _ in find(text)]


class Code(unittest.TestCase):
    def test_fronted_words_begin_no_comment(self):
        for comment in ("// Of one bucket", "int x;  // what it holds", "// Whether it fits", "// as many as ranks"):
            self.assertEqual(kinds(comment), ["fronted comment"], comment)
        for comment in ("// Returns what it holds", "// Of course not", "// https://a.b // of", "int of;  // Bytes of x"):
            self.assertEqual(kinds(comment), [], comment)

    def test_the_special_value_comes_last(self):
        self.assertEqual(kinds("int x;  // Layer of the block; none: the whole model"), ["special value first"])
        self.assertEqual(kinds("int x;  // nullopt if the block is whole"), [])

    def test_names_of_cases_state_a_property(self):
        self.assertEqual(kinds('TEST_CASE("of two ranks one speaks") {'), ["fronted test name"])
        self.assertEqual(kinds('TEST_CASE("only rank 0 speaks") {'), [])

    def test_lines_are_counted_from_one(self):
        self.assertEqual(list(prose.faults_of_code("int x;\n// Which of them\n")), [("fronted comment", 2)])


class Pages(unittest.TestCase):
    def test_long_sentences_and_cells(self):
        words = "word " * 31
        self.assertEqual(kinds(words + ".", prose.faults_of_page), ["long sentence"])
        self.assertEqual(kinds("| " + words + " | b |", prose.faults_of_page), ["long table cell"])
        self.assertEqual(kinds("word. " * 31, prose.faults_of_page), [])
        self.assertEqual(kinds("```\n" + words + "\n```", prose.faults_of_page), [])

    def test_the_line_of_a_sentence_is_near_it(self):
        text = "Short.\n\n" + "word " * 31 + "."
        self.assertEqual([number for _, number in prose.faults_of_page(text)], [3])


class Tree(unittest.TestCase):
    def test_no_count_rises(self):
        self.assertEqual(prose.main([]), 0)


if __name__ == "__main__":
    unittest.main()
