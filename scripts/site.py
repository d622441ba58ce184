"""Build the site of docs/ into site/, with Zensical.

    python scripts/site.py [FOLDER]

The pages in docs/ link to files of the repository outside docs/, which a site does not have. So this copies docs/ to
FOLDER/docs (by default build/site) and adds a page for every file that is linked to: Markdown as it is, anything else
as a listing. A link to a folder leads to its README, or else to a list of its files. Images outside docs/ are copied,
too. FOLDER/site is the result; without FOLDER it is copied to site/.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
CONFIG = ROOT / "mkdocs.yml"
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)")
IMAGE = re.compile(r"!\[([^\]]*)\]\((?![a-z]+:)([^)\s]+)\)")
FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".sh": "sh", ".c": "c", ".ipynb": "json"}
LISTED = 50  # list at most this many files of a folder
LINES = 1_500  # show at most this many lines of a file


class Pages:
    """The pages of the site by their path in it; `place` adds a page for a file of the repository when it is first
    linked to."""

    def __init__(self) -> None:
        self.text: dict[str, str] = {}
        self.images: dict[str, Path] = {}  # those outside docs/, by their path in the site

    def add(self, file: Path, page: str) -> None:
        """Add a Markdown file as the page at `page`, with its links led to pages."""
        self.text[page] = ""  # known, so that pages may link to each other
        parts = FENCE.split(file.read_text())
        parts[::2] = [LINK.sub(lambda found: self._link(found, file, page), part) for part in parts[::2]]
        parts[::2] = [IMAGE.sub(lambda found: self._image(found, file, page), part) for part in parts[::2]]
        self.text[page] = "".join(parts)

    def _image(self, found: re.Match[str], file: Path, page: str) -> str:
        target = Path(os.path.normpath(file.parent / found[2]))
        if not target.exists():
            raise FileNotFoundError(f"{file.relative_to(ROOT)} shows {found[2]}, which does not exist")
        if target.is_relative_to(DOCS):
            place = str(target.relative_to(DOCS))
        else:
            place = f"source/{target.relative_to(ROOT)}"
            self.images[place] = target
        return f"![{found[1]}]({os.path.relpath(place, Path(page).parent)})"

    def _link(self, found: re.Match[str], file: Path, page: str) -> str:
        words, path, anchor = found[1], found[2], found[3] or ""
        target = Path(os.path.normpath(file.parent / path))
        if not target.exists():
            raise FileNotFoundError(f"{file.relative_to(ROOT)} links to {path}, which does not exist")
        place = self.place(target)
        return f"[{words}]({os.path.relpath(place, Path(page).parent)}{anchor})"

    def place(self, target: Path) -> str:
        """The page that shows a file or a folder of the repository."""
        if target.is_dir() and (target / "README.md").exists():
            target = target / "README.md"
        if target.is_relative_to(DOCS) and target.is_file():
            return str(target.relative_to(DOCS))
        at_top = target.parent == ROOT and target.suffix == ".md"
        inside = str(target.relative_to(ROOT))
        page = inside if at_top else f"source/{inside.removesuffix('.md')}{'/index' * target.is_dir()}.md"
        if page not in self.text:
            if target.suffix == ".md":
                self.add(target, page)
            else:
                self.text[page] = self._folder(target) if target.is_dir() else listing(target)
        return page

    def _folder(self, folder: Path) -> str:
        files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "__init__.py")
        lines = [f"- `{file.name}`" for file in files[:LISTED]]
        if len(files) > LISTED:
            lines.append(f"- and {len(files) - LISTED} more")
        return f"# `{folder.relative_to(ROOT)}/`\n\n" + "\n".join(lines) + "\n"


def listing(file: Path) -> str:
    """A page with the text of a file."""
    lines = file.read_text().splitlines()
    more = f"\n\n{len(lines) - LINES} more lines are in the file.\n" if len(lines) > LINES else "\n"
    body = "\n".join(lines[:LINES])
    return f"# `{file.relative_to(ROOT)}`\n\n````{LANGUAGES.get(file.suffix, 'text')}\n{body}\n````{more}"


def stage(folder: Path) -> Path:
    """Write the pages and the configuration into `folder`; return the folder of the pages."""
    pages = Pages()
    for file in sorted(DOCS.rglob("*.md")):
        pages.add(file, str(file.relative_to(DOCS)))
    pages.place(ROOT / "CHANGELOG.md")
    out = folder / "docs"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(DOCS, out, ignore=shutil.ignore_patterns("*.md"))
    for page, text in pages.text.items():
        (out / page).parent.mkdir(parents=True, exist_ok=True)
        (out / page).write_text(text)
    for place, image in pages.images.items():
        (out / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(image, out / place)
    shutil.copy(CONFIG, folder / "mkdocs.yml")
    return out


def build(folder: Path) -> Path:
    """Build the site in `folder`; return the folder with its HTML. Any warning, such as a link that leads nowhere or a
    name that does not exist, fails the build."""
    stage(folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    # mkdocs.yml names scripts/docstrings.py as a module.
    subprocess.run(command, cwd=folder, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    return folder / "site"


if __name__ == "__main__":
    made = build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site")
    if len(sys.argv) < 2:
        shutil.rmtree(ROOT / "site", ignore_errors=True)
        made = Path(shutil.copytree(made, ROOT / "site"))
    print(made / "index.html")
