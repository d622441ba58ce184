"""What checks a change: make targets, and the hooks, the workflow and the templates that refer to them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text())


def steps() -> dict[str, list[dict[str, Any]]]:
    """The steps of every job of the workflow."""
    return {name: job["steps"] for name, job in read(".github/workflows/tests.yml")["jobs"].items()}


def settings(job: str, action: str) -> list[Any]:
    """What the steps of a job that use an action set."""
    return [step["with"] for step in steps()[job] if step.get("uses", "").startswith(f"{action}@")]


def test_the_workflow_runs_make_targets_alone() -> None:
    commands = {name: [step["run"] for step in job if "run" in step] for name, job in steps().items()}
    assert commands == {
        "lint": ["make lint PYTHON=python3.11"],
        "test": ["make test PYTHON=python${{ matrix.python }}"],
        "lowest": ["make test-lowest PYTHON=python3.11"],
    }
    assert {"lint", "test", "test-lowest"} <= set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def test_the_workflow_tests_the_versions_of_python_that_the_package_names() -> None:
    matrix = read(".github/workflows/tests.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert matrix == named
    assert PROJECT["requires-python"] == f">={named[0]}"
    lowest = [{"python-version": named[0]}]
    assert settings("lowest", "actions/setup-python") == settings("lint", "actions/setup-python") == lowest
    assert settings("test", "actions/setup-python") == [{"python-version": "${{ matrix.python }}"}]


def test_the_workflow_tests_on_java_17() -> None:
    for job in ("test", "lowest"):
        assert [java["java-version"] for java in settings(job, "actions/setup-java")] == ["17"]


def test_hooks_run_the_linters_of_make_from_the_projects_environment() -> None:
    """They have no versions of their own, so they cannot differ from what `.ci/run` uses."""
    repositories = read(".pre-commit-config.yaml")["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]
    hooks = repositories[0]["hooks"]
    assert {hook["language"] for hook in hooks} == {"system"}
    lint = re.findall(r"\$\(PY\) -m ((?:ruff )?\w+)", MAKEFILE.split("\nlint:")[1].split("\n\n")[0])
    entries = [re.match(r"\.venv/bin/python -m ((?:ruff )?\w+)", hook["entry"]) for hook in hooks]
    assert [entry and entry[1] for entry in entries] == lint == ["ruff check", "ruff format", "mypy"]


def test_the_lock_file_has_every_dependency_at_a_version_that_is_allowed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*PROJECT["dependencies"], *project["dependency-groups"]["build"]]
    wanted += [each for extra in PROJECT["optional-dependencies"].values() for each in extra]
    pins = re.findall(
        r"^([\w.-]+)(?:\[.*\])?==(\S+)", (ROOT / "requirements-dev.lock").read_text(), re.MULTILINE
    )
    assert pins
    for requirement in map(Requirement, wanted):
        found = [
            version
            for name, version in pins
            if canonicalize_name(name) == canonicalize_name(requirement.name)
        ]
        assert found, f"{requirement} is not in requirements-dev.lock: run `make lock`"
        assert all(map(requirement.specifier.contains, found)), (
            f"{requirement}, but {found} in requirements-dev.lock"
        )


def test_issue_forms_are_what_github_reads_and_ask_for_the_version() -> None:
    folder = ROOT / ".github" / "ISSUE_TEMPLATE"
    forms = {path.stem: yaml.safe_load(path.read_text()) for path in folder.glob("*.yml")}
    assert forms.pop("config") == {"blank_issues_enabled": True}
    assert set(forms) == {"bug", "feature"}
    for form in forms.values():
        assert form["name"] and form["description"]
        ids = [field["id"] for field in form["body"]]
        assert len(set(ids)) == len(ids)
        assert {field["type"] for field in form["body"]} <= {"textarea", "input", "dropdown"}
        assert all(field["attributes"]["label"] for field in form["body"])
    asked = {field["id"]: field for field in forms["bug"]["body"]}
    assert "streamjoin --version" in asked["version"]["attributes"]["label"]
    assert asked["version"]["validations"] == {"required": True}
