"""The sample manifests for Kubernetes say what roles need: each pod's environment is read as a role would read it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from fluidtool.cli.app import Commands
from fluidtool.distribute.environment import Role, role_from_environment
from fluidtool.distribute.rpc.security import Security

FOLDER = Path(__file__).parents[3] / "samples" / "kubernetes"
SERVERS = ("digits-pserver-0.digits:6174", "digits-pserver-1.digits:6174")


def documents(name: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((FOLDER / name).read_text()) if each]


def jobs() -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in documents("indexed-job.yaml") if each["kind"] == "Job"}


def pod(job: dict[str, Any], index: int) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a pod, as Kubernetes makes them."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    found: dict[str, str] = {}
    for entry in container["env"]:
        source = entry.get("valueFrom", {})
        if "fieldRef" in source:
            assert source["fieldRef"]["fieldPath"].endswith("['batch.kubernetes.io/job-completion-index']")
            found[entry["name"]] = str(index)
        elif "secretKeyRef" in source:
            found[entry["name"]] = "0123456789abcdef"
        else:
            found[entry["name"]] = filled(entry["value"], found)
    return [filled(word, found) for word in container["command"]], found


def filled(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], text)


def parsed(words: list[str]) -> dict[str, Any]:
    """What the command line makes of the words; they must be a command of fluidtool."""
    assert words[0] == "fluidtool"
    command = Commands().get_command(None, words[1])
    return dict(command.make_context(words[1], words[2:]).params)


@pytest.mark.parametrize("index", [0, 1])
def test_pods_of_servers_are_the_servers(index: int) -> None:
    words, environment = pod(jobs()["digits-pserver"], index)
    assert role_from_environment(environment) == Role("pserver", 0, 4, SERVERS, (), SERVERS[index])
    assert parsed(words)["model"] == f"/shared/job/pserver_{index}" and parsed(words)["allow_network"]
    Security.from_environment(environment).check_address(SERVERS[index])


@pytest.mark.parametrize("index", range(4))
def test_pods_of_trainers_are_the_trainers(index: int) -> None:
    words, environment = pod(jobs()["digits-trainer"], index)
    assert role_from_environment(environment) == Role("trainer", index, 4, SERVERS)
    found = parsed(words)
    assert (found["model"], *found["data"]) == (f"/shared/job/trainer_{index}", "/shared/data.npz")


def test_every_role_of_the_job_has_a_pod() -> None:
    sizes = {name: (job["spec"]["completions"], job["spec"]["parallelism"]) for name, job in jobs().items()}
    assert sizes == {"digits-pserver": (2, 2), "digits-trainer": (4, 4)}
    assert all(
        job["spec"]["completionMode"] == "Indexed" and job["spec"]["backoffLimit"] == 0 for job in jobs().values()
    )


def test_pods_are_found_by_the_names_that_endpoints_have() -> None:
    (service,) = [each for each in documents("indexed-job.yaml") if each["kind"] == "Service"]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["ports"][0]["port"] == 6174
    for name, job in jobs().items():
        template = job["spec"]["template"]
        assert template["metadata"]["labels"].items() >= service["spec"]["selector"].items()
        assert template["spec"]["subdomain"] == service["metadata"]["name"]
        assert name.startswith(service["metadata"]["name"])


def test_all_pods_save_in_one_place() -> None:
    places = {pod(job, 0)[1]["FLUIDTOOL_CHECKPOINT_DIR"] for job in jobs().values()}
    assert places == {"/shared/checkpoints"}


def test_the_ray_job_launches_on_its_cluster() -> None:
    (job,) = documents("kuberay.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    found = parsed(shlex.split(job["spec"]["entrypoint"]))
    assert (found["engine"], found["ray_address"], found["restarts"]) == ("ray", "auto", 3)
    assert list(found["arguments"][:2]) == ["--data", "/shared/data.npz"]


def test_the_ray_cluster_has_a_cpu_for_every_role_and_one_volume() -> None:
    spec = documents("kuberay.yaml")[0]["spec"]["rayClusterSpec"]
    (workers,) = spec["workerGroupSpecs"]
    cpus = int(workers["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"])
    assert workers["replicas"] * cpus == 6
    groups = [spec["headGroupSpec"], workers]
    paths = {each["template"]["spec"]["containers"][0]["volumeMounts"][0]["mountPath"] for each in groups}
    assert paths == {"/shared"}
