"""The wheel and the source archive: what they hold, what they say of themselves, and how they are cited."""

from __future__ import annotations

import re
import subprocess
import tarfile
import tomllib
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from packaging.metadata import Metadata

from redalg.commands.machine import PACKAGES
from redalg.version import VERSION
from tests.house.source import ROOT
from tests.wheels import CHECKS, LIGHT, PROGRAMS, program_of

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def build(builder: type[Any], folder: Path, version: str) -> Path:
    return Path(next(iter(builder(str(ROOT)).build(directory=str(folder), versions=[version]))))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZipFile]:
    with ZipFile(build(WheelBuilder, tmp_path_factory.mktemp("wheel"), "standard")) as archive:
        yield archive


def text_of(wheel: ZipFile, name: str) -> str:
    return wheel.read(f"redalg-{VERSION}.dist-info/{name}").decode()


def files_of(folder: str) -> set[str]:
    """The files of a folder that are under version control, or would be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return {name for name in listed if (ROOT / name).exists()}


def test_the_wheel_holds_the_library_and_nothing_else(wheel: ZipFile) -> None:
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == files_of("redalg")
    assert "redalg/py.typed" in held


def test_the_wheel_says_what_it_is(wheel: ZipFile) -> None:
    """As `twine check` does: the metadata are valid, and the description is Markdown, so that it is rendered."""
    text = text_of(wheel, "METADATA")
    metadata = Metadata.from_email(text.encode(), validate=True)
    assert (metadata.author, metadata.license_expression) == ("redalg developers", "Apache-2.0")
    assert metadata.description_content_type == "text/markdown"
    assert sorted(metadata.keywords or []) == sorted(PROJECT["keywords"])
    assert not (metadata.project_urls or {}).keys() - PROJECT.get("urls", {}).keys()
    assert "# redalg" in str(Parser().parsestr(text).get_payload())


def test_classifiers_are_those_of_the_index() -> None:
    from trove_classifiers import classifiers

    assert set(PROJECT["classifiers"]) <= classifiers
    assert not any(one.startswith("License ::") for one in PROJECT["classifiers"])  # beside an SPDX expression


def test_the_command_is_installed(wheel: ZipFile) -> None:
    assert "redalg = redalg.__main__:main" in text_of(wheel, "entry_points.txt")


def test_all_is_what_users_may_want() -> None:
    extras = PROJECT["optional-dependencies"]
    named = set(re.findall(r"\w+", extras["all"][0].partition("[")[2]))
    apart = {"dev", "docs", "integration", "ray", "torch"}  # kernels need torch; Ray is heavy
    assert named == extras.keys() - apart - {"all"}
    assert "redalg[torch]" in extras["tilelang"]


def test_readme_and_doctor_name_every_extra() -> None:
    extras = PROJECT["optional-dependencies"].keys() - {"dev", "integration"}
    rows = (ROOT / "README.md").read_text(encoding="utf-8").partition("| extra |")[2].partition("\n\n")[0].splitlines()
    assert {name for row in rows[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])} == extras
    requirements = {requirement for _, requirement in PACKAGES.values()}
    assert requirements == {*(f"redalg[{name}]" for name in extras - {"all"}), "transformers"}


def test_make_wheels_tries_every_extra() -> None:
    """But for those that `make test` and `make integration` install."""
    assert CHECKS.keys() == {"", "sdist", *PROJECT["optional-dependencies"]} - {"dev", "integration"}
    assert {check for checks in CHECKS.values() for check in checks} >= PROGRAMS.keys()
    assert all(set(LIGHT) <= set(checks) for checks in CHECKS.values())
    for check in PROGRAMS:
        compile(program_of(check), check, "exec")
    assert "import torch" not in program_of("verdict")


def test_the_source_archive_can_be_tested(tmp_path: Path) -> None:
    with tarfile.open(build(SdistBuilder, tmp_path, "standard")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"LICENSE", "README.md", "CITATION.cff", "Makefile", "pyproject.toml", "constraints.txt"}
    assert wanted | files_of("redalg") | files_of("tests") | files_of("docs") <= names


def test_the_citation_is_of_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    fields = dict(re.findall(r"^([\w-]+): (.+)$", text, re.MULTILINE))
    assert fields["version"] == VERSION
    assert fields["license"] == PROJECT["license"]
    assert {"cff-version", "message", "title"} <= fields.keys()
    assert f"- name: {PROJECT['authors'][0]['name']}" in text
