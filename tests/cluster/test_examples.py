"""The files in examples/workers and examples/kubernetes agree with each other and with the command."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from corral.cli.dispatch import run
from corral.cluster import AgentSandbox

EXAMPLES = Path(__file__).parents[2] / "examples"
KUBERNETES = EXAMPLES / "kubernetes"


def loaded(name: str) -> Any:
    return yaml.safe_load((KUBERNETES / name).read_text(encoding="utf-8"))


def test_the_manifests_agree_with_each_other() -> None:
    assert sorted(loaded("kustomization.yaml")["resources"]) == sorted(
        path.name for path in KUBERNETES.glob("*.yaml") if path.name != "kustomization.yaml"
    )
    deployment, service, policy = (loaded(f"{n}.yaml") for n in ("deployment", "service", "network-policy"))
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == policy["spec"]["podSelector"]["matchLabels"] == labels
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
    port = service["spec"]["ports"][0]["port"]
    assert f"--port={port}" in container["args"]
    assert policy["spec"]["ingress"][0]["ports"] == [{"port": port}]
    (drain,) = (int(each.partition("=")[2]) for each in container["args"] if each.startswith("--drain-seconds"))
    assert pod["terminationGracePeriodSeconds"] > drain
    assert json.loads((KUBERNETES / "seccomp.json").read_text())["defaultAction"] == "SCMP_ACT_ALLOW"


def test_the_manifests_of_agent_sandbox_agree_with_each_other() -> None:
    folder = KUBERNETES / "agent-sandbox"
    resources = {path.name: list(yaml.safe_load_all(path.read_text("utf-8"))) for path in folder.glob("*.yaml")}
    [kustomization] = resources.pop("kustomization.yaml")
    assert sorted(kustomization["resources"]) == sorted(resources)
    [template], [pool] = resources["sandbox-template.yaml"], resources["sandbox-warm-pool.yaml"]
    assert pool["spec"]["sandboxTemplateRef"]["name"] == template["metadata"]["name"]
    [container] = template["spec"]["podTemplate"]["spec"]["containers"]
    assert {"--one-owner", "--tier=none", "--capacity=8", "--port=7000"} == {*container["args"]}
    settings = inspect.signature(AgentSandbox).parameters
    assert (settings["port"].default, settings["executions_at_once"].default) == (7000, 8)
    assert template["spec"]["networkPolicy"]["ingress"][0]["ports"] == [{"port": 7000}]
    assert container["securityContext"]["runAsNonRoot"]
    account, role, binding = resources["role.yaml"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account["metadata"]["name"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert role["rules"] == [
        {
            "apiGroups": ["extensions.agents.x-k8s.io"],
            "resources": ["sandboxclaims"],
            "verbs": ["create", "get", "list", "watch", "delete"],
        }
    ]


def test_every_option_in_the_examples_is_one_of_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["worker", "--help"])
    known = set(re.findall(r"--[\w-]+", capfd.readouterr().out))
    texts = loaded("deployment.yaml")["spec"]["template"]["spec"]["containers"][0]["args"]
    template = loaded("agent-sandbox/sandbox-template.yaml")
    texts += template["spec"]["podTemplate"]["spec"]["containers"][0]["args"]
    unit = (EXAMPLES / "workers" / "corral-worker.service").read_text(encoding="utf-8")
    texts += re.findall(r"ExecStart=.*", unit) + re.findall(
        r"ENTRYPOINT.*", (EXAMPLES / "workers" / "Containerfile").read_text(encoding="utf-8")
    )
    used = set(re.findall(r"--[\w-]+", " ".join(texts)))
    assert used
    assert not used - known
