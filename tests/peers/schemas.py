"""Shipped YAML files validate against plumb's JSON Schemas, and broken ones do not, by the public validator `jsonschema`.

    python tests/peers/schemas.py build/bin/plumb

Broken files are made from the shipped ones: each kind of fault, once on each field that a file has. plumb itself
refuses the broken scenarios too.
"""

import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import jsonschema
    import yaml
except ImportError as missing:
    print(f"skipped: {missing.name} is not installed (pip install jsonschema pyyaml)")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCENARIOS = ROOT / "scenarios"


class Loader(yaml.SafeLoader):
    """YAML 1.2's scalars: 1e-3 is a number, `on` and `no` are text."""


Loader.yaml_implicit_resolvers = {}
for tag, pattern, first in [
    ("bool", r"^(true|True|false|False)$", "tTfF"),
    ("null", r"^(~|null|)$", ["~", "n", ""]),
    ("int", r"^[-+]?[0-9]+$", "-+0123456789"),
    ("float", r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$", "-+.0123456789"),
]:
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), list(first))


def load(path):
    return yaml.load(path.read_text(), Loader)


def shipped():
    """Every file of scenarios/, by its kind."""
    kinds = {"machine": [], "model": [], "software": [], "what-if": [], "table": [], "scenario": []}
    folders = {"machines": "machine", "models": "model", "software": "software", "what-if": "what-if", "published": "table"}
    for path in sorted(SCENARIOS.rglob("*.yaml")):
        kinds[folders.get(path.relative_to(SCENARIOS).parts[0], "scenario")].append(path)
    return kinds


class Breaker:
    """Makes broken copies of a document, guided by its schema."""

    def __init__(self, schema):
        self.schema = schema
        self.done = set()

    def options(self, node):
        """The schema's alternatives without references."""
        if "$ref" in node:
            return self.options(self.schema["$defs"][node["$ref"].split("/")[-1]])
        if "anyOf" in node and "properties" not in node:
            return [option for one in node["anyOf"] for option in self.options(one)]
        return [node]

    def broken(self, document):
        yield from self.walk(document, self.schema, [], document)

    def replaced(self, document, path, value, key=None):
        copied = copy.deepcopy(document)
        at = copied
        for step in path if key else path[:-1]:
            at = at[step]
        at[key if key else path[-1]] = value
        return copied

    def once(self, fault, path):
        name = (fault, ".".join(str(step) for step in path if not isinstance(step, int)))
        if name in self.done:
            return False
        self.done.add(name)
        return True

    def walk(self, value, node, path, document):
        options = self.options(node)
        if path:
            yield from self.faults(value, options, path, document)
        if isinstance(value, list):
            items = [one["items"] for one in options if one.get("type") == "array"]
            for index, item in enumerate(value[:2]):
                for schema in items:
                    yield from self.walk(item, schema, path + [index], document)
        if isinstance(value, dict):
            for schema in options:
                properties = schema.get("properties")
                if properties is None or not set(value) <= set(properties):
                    continue
                if self.once("unknown key", path):
                    yield "unknown key", path, self.replaced(document, path, 1, "no_such_key")
                for key in schema.get("required", []):
                    if key in value and self.once("missing key", path + [key]):
                        copied = copy.deepcopy(document)
                        at = copied
                        for step in path:
                            at = at[step]
                        del at[key]
                        yield "missing key", path + [key], copied
                for key in value:
                    yield from self.walk(value[key], properties[key], path + [key], document)

    def faults(self, value, options, path, document):
        for fault, wrong in [("null", None), ("odd block", {"no_such_key": 1}), ("odd list", [{"no_such_key": 1}])]:
            if self.once(fault, path):
                yield fault, path, self.replaced(document, path, wrong)
        numbers = [one for one in options if one.get("type") in ("integer", "number")]
        texts = [one for one in options if one.get("type") not in ("integer", "number", "object", "array", "boolean")]
        for number in numbers:
            if "minimum" in number and self.once("too small", path):
                yield "too small", path, self.replaced(document, path, number["minimum"] - 1)
            if "maximum" in number and self.once("too large", path):
                yield "too large", path, self.replaced(document, path, number["maximum"] * 2 + 1)
        whole = numbers and all(one["type"] == "integer" for one in numbers)
        if whole and self.once("no whole number", path):
            yield "no whole number", path, self.replaced(document, path, 1.5)
        free = any("enum" not in one and "const" not in one and "pattern" not in one for one in texts)
        if not free and isinstance(value, str) and self.once("odd word", path):
            yield "odd word", path, self.replaced(document, path, "no-such-word")
        if texts and all("GB" in one.get("pattern", "") or "us" in one.get("pattern", "") for one in texts):
            for fault, wrong in [("no unit", 5), ("odd unit", "5 parsec"), ("negative", "-5 GB")]:
                if self.once(fault, path):
                    yield fault, path, self.replaced(document, path, wrong)


def refused_by_plumb(plumb, document):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "broken.yaml"
        path.write_text(yaml.safe_dump(document))
        run = subprocess.run([plumb, "show", str(path)], capture_output=True, text=True, timeout=120)
    return run.returncode == 2, run.stdout + run.stderr


def main():
    plumb = sys.argv[1]
    failures = []
    valid = broken = by_plumb = 0
    for kind, paths in shipped().items():
        schema = json.loads(subprocess.run([plumb, "schema", kind], capture_output=True, text=True, check=True).stdout)
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(schema)
        breaker = Breaker(schema)
        if not paths:
            failures.append(f"no file of the kind {kind}")
        for path in paths:
            document = load(path)
            error = jsonschema.exceptions.best_match(validator.iter_errors(document))
            if error:
                failures.append(f"{path}: {error.json_path}: {error.message[:200]}")
                continue
            valid += 1
            for fault, at, wrong in breaker.broken(document):
                broken += 1
                where = f"{path.name}: {fault} at {'.'.join(map(str, at))}"
                if validator.is_valid(wrong):
                    failures.append(f"{where} validates")
                # A fraction of them, since each is a run of the program.
                if kind in ("scenario", "model") and broken % 4 == 0:
                    by_plumb += 1
                    refused, text = refused_by_plumb(plumb, wrong)
                    if not refused:
                        failures.append(f"{where}: plumb takes it: {text[:200]}")
    print(f"{valid} shipped files validate, {broken} broken ones do not, plumb refuses {by_plumb} of those it was given")
    for failure in failures:
        print(failure)
    sys.exit(1 if failures or broken < 100 else 0)


if __name__ == "__main__":
    main()
