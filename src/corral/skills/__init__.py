"""Skills: folders of instructions and modules, which programs of both languages import."""

from corral.skills.skill import Skill
from corral.skills.skill_set import SkillSet

__all__ = ["Skill", "SkillSet"]
