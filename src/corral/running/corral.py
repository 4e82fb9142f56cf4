"""`Corral`: the public class, which wires all stages of the pipeline."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from logging import Logger, getLogger
from pathlib import Path

from corral.arguments import checked
from corral.audit import AuditLog, AuditSource, Telemetry, as_audit_log
from corral.bridges import BridgeHost
from corral.bridges.selection import Bridges, Protocols
from corral.calls import Grants, ImpliedScopes, Pipeline, Policy, RateLimits, ServiceSource, Tokens, pipeline
from corral.checking import Checker
from corral.errors import ConfigError
from corral.isolation import Tier
from corral.model import LearntResults
from corral.packages import Packages, PythonPackages
from corral.plugins import load_by_name
from corral.programs.compiled import Compiler
from corral.running import Check, Runtime
from corral.running.asking import CorralAsking
from corral.running.tool_views import ToolViews
from corral.sandboxes.selection import Providers, Sandboxes
from corral.sessions import Sessions
from corral.sessions.skills import Skill, SkillSet
from corral.tools.tool_sources import Tools, registry_and_sources
from corral.types import LIMITS_OF_SANDBOXES, Approve, LimitName, Limits


@checked
class Corral(CorralAsking):
    """Runs models' programs against tools, each in its own sandbox.

    The constructor, but for `skills`, and `declarations` do no input or output. Executions may overlap. `aclose`, from
    any task of the same event loop, cancels those that still run and frees all resources.

    `network` is a `corral.egress.Network` of origins that programs may ask by themselves; None: they have no network.
    `modules` are packages of npm that programs in TypeScript may import, and `packages` those of Python, besides the
    ones of its sandbox. `sessions` gives callers who name a
    `session_id` files of their own, which stay from one program to the next. `skills` are folders with `SKILL.md` and
    modules, which are read here; `modules` has what bundles those in TypeScript. `compilers` are for programs in
    languages that become JavaScript, by the name that `execute(compiler=...)` takes.

    `telemetry` sends spans and metrics to OpenTelemetry, by default to the providers of the process, if it has any.

    `learnt` is what is seen of the results of tools that declare none, which models are told; by default if they are
    texts or JSON.

    `logger` is the parent of the loggers of tools (`ToolCall.logger`) and programs; None: the logger `corral`. With
    `log_code` every program is logged at level INFO, as the model wrote it.

    Raises:
        ConfigError: the options are wrong or do not fit together.
    """

    def __init__(
        self,
        tools: Tools = (),
        *,
        sandbox: Sandboxes = "auto",
        bridge: Bridges = "pipe",
        limits: Limits | None = None,
        required_tier: Tier = "landlock",
        accept_unenforced: Collection[LimitName] = (),
        network: ServiceSource | None = None,
        modules: Packages | None = None,
        packages: PythonPackages | None = None,
        sessions: Sessions | None = None,
        skills: Sequence[Skill | str | Path] = (),
        compilers: Mapping[str, Compiler] | None = None,
        check: Check = True,
        audit: AuditLog | AuditSource | None = None,
        telemetry: Telemetry | bool = True,
        rates: RateLimits | None = None,
        implied_scopes: Mapping[str, Iterable[str]] | None = None,
        hide_denied: bool = False,
        approve: Approve | None = None,
        approval_seconds: float = 300.0,
        tokens: Tokens | None = None,
        pipeline: Pipeline = pipeline,
        learnt: LearntResults | None = None,
        logger: Logger | None = None,
        log_code: bool = False,
    ) -> None:
        if unknown := sorted(set(accept_unenforced) - LIMITS_OF_SANDBOXES):
            raise ConfigError(
                f"accept_unenforced={unknown[0]!r} is not a limit that a sandbox enforces; those are: "
                f"{', '.join(sorted(LIMITS_OF_SANDBOXES))}"
            )
        if not approval_seconds > 0:
            raise ConfigError(f"Corral(): approval_seconds must be positive, not {approval_seconds}")
        self.tools, sources = registry_and_sources(tools)
        self.limits = limits or Limits()
        self.required_tier: Tier = required_tier
        self.check_by_default: Check = check
        self.hide_denied = hide_denied
        self.approve = approve
        self.can_be_kept = isinstance(sandbox, str) and bridge == "pipe" and not sources.missing
        """True if it may be closed in another event loop, or by the process's exit."""
        if any(each is not None for each in (audit, rates, sessions, network, learnt)):
            self.can_be_kept = False
        self.learnt = learnt or LearntResults()
        self._load_tokens = _LazyTokens(tokens)
        rates = rates or RateLimits()
        audit_log = None if audit is None else as_audit_log(audit)
        traces = Telemetry() if telemetry is True else telemetry or None
        grants = Grants(self._load_tokens)
        policy = Policy(
            grants=grants,
            rates=rates,
            audit=audit_log,
            approve=approve,
            approval_seconds=approval_seconds,
            logger=logger,
            telemetry=traces,
            learnt=self.learnt,
        )
        handler = pipeline(policy)
        implied = ImpliedScopes(implied_scopes or {})
        skill_set = SkillSet(skills)
        runtime = Runtime(
            tools=self.tools,
            limits=self.limits,
            check=check,
            providers=Providers(sandbox),
            checker=Checker(packages=None if modules is None else modules.node_modules),
            required_tier=required_tier,
            accept_unenforced=frozenset(accept_unenforced),
            protocols=Protocols(bridge, BridgeHost(handler, grants)),
            handler=handler,
            grants=grants,
            rates=rates,
            implied=implied,
            audit=audit_log,
            parked=policy.parked,
            telemetry=traces,
            service_sources=() if network is None else (network,),
            modules=modules.with_skills(skill_set) if modules is not None and skill_set.skills else modules,
            packages=packages,
            skills=skill_set,
            compilers=dict(compilers or {}),
            learnt=self.learnt,
            code_logger=(logger or getLogger("corral")).getChild("programs") if log_code else None,
        )
        views = ToolViews(self.tools, implied, hide_denied=hide_denied, learnt=self.learnt)
        super().__init__(runtime, sources, sandbox, views, sessions)


class _LazyTokens:
    """Makes the default issuer of tokens when the first token is needed."""

    def __init__(self, given: Tokens | None) -> None:
        self._made: dict[str, Tokens] = {} if given is None else {"tokens": given}

    def __call__(self) -> Tokens:
        # `setdefault` is one step: of two threads, which would make two random keys, both get the first one's
        return self._made.get("tokens") or self._made.setdefault("tokens", load_by_name("corral.tokens", "http"))
