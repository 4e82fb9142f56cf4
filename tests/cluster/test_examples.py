"""The files in examples/workers and examples/kubernetes agree with each other and with the command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from corral.cli.dispatch import run

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


def test_every_option_in_the_examples_is_one_of_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["worker", "--help"])
    known = set(re.findall(r"--[\w-]+", capfd.readouterr().out))
    texts = loaded("deployment.yaml")["spec"]["template"]["spec"]["containers"][0]["args"]
    unit = (EXAMPLES / "workers" / "corral-worker.service").read_text(encoding="utf-8")
    texts += re.findall(r"ExecStart=.*", unit) + re.findall(
        r"ENTRYPOINT.*", (EXAMPLES / "workers" / "Containerfile").read_text(encoding="utf-8")
    )
    used = set(re.findall(r"--[\w-]+", " ".join(texts)))
    assert used
    assert not used - known
