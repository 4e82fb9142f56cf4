"""The documentation's site: its navigation is docs/README.md, its pages are the Markdown files of the repository."""

from docs_src.site.generator import build, publish
from docs_src.site.navigation import Group, Problem, navigation
from docs_src.site.pages import ROOT, Site, stage

__all__ = ["ROOT", "Group", "Problem", "Site", "build", "navigation", "publish", "stage"]
