"""Writes the reference."""

from docs_src.reference import FOLDER, pages

FOLDER.mkdir(exist_ok=True)
for each in FOLDER.glob("*.md"):
    each.unlink()
for name, text in pages().items():
    FOLDER.joinpath(name).write_text(text, encoding="utf-8")
print(f"written: {FOLDER}")
