"""Run the official JSON-Schema-Test-Suite: json_schema_suite.py FOLDER [-v]

FOLDER holds its tests/draft2020-12/*.json.  "refused" counts what the README says is
refused: references to other documents, other dialects, and \\p{...} in patterns.
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from mcp_server import SchemaError, prepare  # noqa: E402


def outcome(group, test) -> str:
    try:
        check = prepare(group["schema"])
    except SchemaError as error:
        text = str(error)
        # Only a missing reference or another dialect is a documented refusal.
        known = "is not in this schema" in text or "expected the dialect" in text
        known = known or r"\p is not supported" in text
        return "refused" if known else f"failed: {text}"
    good = (check(test["data"], "value") == []) == test["valid"]
    return "passed" if good else "failed"


def main(folder: str, verbose: bool) -> int:
    total = {"passed": 0, "refused": 0, "failed": 0}
    print(f"{'keyword file':32}{'passed':>8}{'refused':>8}{'failed':>8}{'total':>8}")
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        row = dict.fromkeys(total, 0)
        for group in json.loads(path.read_text("utf-8")):
            for test in group["tests"]:
                result = outcome(group, test)
                row[result.partition(":")[0]] += 1
                if verbose and not result.startswith("passed"):
                    print(f"    {result}: {group['description']} / {test['description']}")
        for name in row:
            total[name] += row[name]
        print(f"{path.stem:32}" + "".join(f"{n:8}" for n in [*row.values(), sum(row.values())]))
    print(f"{'all':32}" + "".join(f"{n:8}" for n in [*total.values(), sum(total.values())]))
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], "-v" in sys.argv))
