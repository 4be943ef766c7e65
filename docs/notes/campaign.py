"""Run a workflow in pieces of limited time until nothing is missing (campaign.py WORKFLOW [OPTION...])."""

import json
import subprocess
import sys

DONE, FAILED, STOPPED = 0, 1, 3


def quarkline(command, *arguments):
    """Exit code and document of a command."""
    words = ["quarkline", command, *arguments, "--json"]
    ended = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    content = json.loads(ended.stdout)
    if content["schema"] == "quarkline.error/1":
        sys.exit(f"{' '.join(words)}: {content['error']}")
    if content["schema"] != f"quarkline.{command}/1":
        sys.exit(f"this script knows quarkline.{command}/1, not {content['schema']}")
    return ended.returncode, content


def main(workflow, *options):
    """Pieces of an hour; three without progress are enough."""
    idle = 0
    while idle < 3:
        code, outcome = quarkline("run", workflow, "--time-limit", "1h", *options)
        computed = sum(states.get("done", 0) for states in outcome["states"].values())
        print(f"run {outcome['run']}: {computed} chunks in {outcome['seconds']:.0f} s")
        for failure in outcome["failures"]:
            print(f"  {failure}")
        if code == DONE:
            _, exported = quarkline("export", workflow, "--to", "csv")
            print(f"report {outcome['report']}, and {len(exported['files'])} tables")
            return DONE
        limited = code == STOPPED and outcome["stopped"].startswith("time limit")
        if code != FAILED and not limited:
            print(f"exit code {code}: {outcome['stopped']}")
            return code
        idle = 0 if computed else idle + 1
    _, plan = quarkline("plan", workflow)
    print(f"given up: {len(plan['missing'])} chunks are missing")
    return FAILED


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
