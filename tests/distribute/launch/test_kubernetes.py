"""The sample manifests for Kubernetes: valid by schema, and each pod plays the role that it should."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from fluidtool.cli.app import Commands
from fluidtool.distribute.launch.blueprint import draw
from tests.distribute.launch.jobs import transpile_as_told, write_programs
from tests.support.checkout import ROOT

FOLDER = ROOT / "samples" / "kubernetes"
SERVERS = ("digits-pserver-0-0.digits:6174", "digits-pserver-0-1.digits:6174")
RELEASE = "1.33"  # of Kubernetes


def documents(name: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((FOLDER / name).read_text()) if each]


def job_set() -> dict[str, Any]:
    return documents("jobset.yaml")[0]


def ray_job() -> dict[str, Any]:
    return documents("kuberay.yaml")[0]


def replicated() -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in job_set()["spec"]["replicatedJobs"]}


def pod_specs() -> list[dict[str, Any]]:
    """Those of all manifests."""
    cluster = ray_job()["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    jobs = [job["template"]["spec"]["template"]["spec"] for job in replicated().values()]
    return [*jobs, *(group["template"]["spec"] for group in groups)]


# ---------------------------------------------------------------- schemas
def closed(*required: str, **properties: Any) -> dict[str, Any]:
    """An object with these keys and no other."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


TEXT, COUNT = {"type": "string"}, {"type": "integer", "minimum": 0}
NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
TEMPLATE = {"type": "object"}  # of Kubernetes itself: see test_what_is_kubernetes_own_is_valid
TEXTS = {"type": "array", "items": TEXT}
# The parts of jobset.x-k8s.io/v1alpha2 and ray.io/v1 that the samples use, from the API references of JobSet and KubeRay.
RULE = closed(
    "action",
    name=TEXT,
    action={"enum": ["FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"]},
    onJobFailureReasons={
        "type": "array",
        "items": {"enum": ["PodFailurePolicy", "BackoffLimitExceeded", "DeadlineExceeded"]},
    },
    targetReplicatedJobs=TEXTS,
)
JOB_SET = closed(
    "apiVersion",
    "kind",
    "metadata",
    "spec",
    apiVersion={"const": "jobset.x-k8s.io/v1alpha2"},
    kind={"const": "JobSet"},
    metadata=closed("name", name=NAME),
    spec=closed(
        "replicatedJobs",
        network=closed(
            enableDNSHostnames={"type": "boolean"}, publishNotReadyAddresses={"type": "boolean"}, subdomain=NAME
        ),
        successPolicy=closed("operator", operator={"enum": ["All", "Any"]}, targetReplicatedJobs=TEXTS),
        failurePolicy=closed(
            maxRestarts=COUNT,
            restartStrategy={"enum": ["Recreate", "BlockingRecreate"]},
            rules={"type": "array", "items": RULE, "maxItems": 20},
        ),
        replicatedJobs={
            "type": "array",
            "items": closed("name", "template", name=NAME, replicas=COUNT, template=closed("spec", spec=TEMPLATE)),
        },
    ),
)
PARAMETERS = {"type": "object", "additionalProperties": TEXT}
RAY_JOB = closed(
    "apiVersion",
    "kind",
    "metadata",
    "spec",
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayJob"},
    metadata=closed("name", name=NAME),
    spec=closed(
        "entrypoint",
        "rayClusterSpec",
        entrypoint=TEXT,
        backoffLimit=COUNT,
        shutdownAfterJobFinishes={"type": "boolean"},
        ttlSecondsAfterFinished=COUNT,
        rayClusterSpec=closed(
            "headGroupSpec",
            headGroupSpec=closed("template", rayStartParams=PARAMETERS, template=TEMPLATE),
            workerGroupSpecs={
                "type": "array",
                "items": closed(
                    "groupName",
                    "minReplicas",
                    "maxReplicas",
                    "template",
                    groupName=NAME,
                    replicas=COUNT,
                    minReplicas=COUNT,
                    maxReplicas=COUNT,
                    rayStartParams=PARAMETERS,
                    template=TEMPLATE,
                ),
            },
        ),
    ),
)


@pytest.mark.parametrize(("document", "schema"), [(job_set(), JOB_SET), (ray_job(), RAY_JOB)], ids=["JobSet", "RayJob"])
def test_what_jobset_and_kuberay_read_is_valid(document: dict[str, Any], schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)


def test_a_wrong_key_is_found() -> None:
    document = job_set()
    document["spec"]["failurePolicy"]["restarts"] = 3
    with pytest.raises(jsonschema.ValidationError, match="restarts"):
        jsonschema.validate(document, JOB_SET)


def own_documents() -> list[dict[str, Any]]:
    """What Kubernetes itself defines: the budget, and what is inside of a JobSet and a RayJob."""
    jobs = [{"apiVersion": "batch/v1", "kind": "Job", **each["template"]} for each in replicated().values()]
    pods = [{"apiVersion": "v1", "kind": "Pod", "spec": spec} for spec in pod_specs()]
    return [*documents("jobset.yaml")[1:], *jobs, *pods]


@pytest.mark.parametrize("document", own_documents(), ids=lambda document: document["kind"])
def test_what_is_kubernetes_own_is_valid(document: dict[str, Any]) -> None:
    reason = "has the schemas of Kubernetes: pip install kubernetes-validate"
    validate = pytest.importorskip("kubernetes_validate", reason=reason)
    validate.validate({"metadata": {"name": "x"}, **document}, RELEASE, strict=True)


# ---------------------------------------------------------------- the JobSet
def pod(name: str, index: int) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of a pod, as Kubernetes makes them."""
    (container,) = replicated()[name]["template"]["spec"]["template"]["spec"]["containers"]
    found: dict[str, str] = {}
    fields = {"batch.kubernetes.io/job-completion-index": str(index), "jobset.sigs.k8s.io/restart-attempt": "2"}
    for entry in container["env"]:
        if "valueFrom" in entry:
            path = entry["valueFrom"]["fieldRef"]["fieldPath"]
            found[entry["name"]] = fields[re.search(r"\['(.*)'\]$", path)[1]]  # type: ignore[index]
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


@pytest.fixture(scope="module", params=["jobset.yaml", "kuberay.yaml"])
def members(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The roles of the job that the command in a manifest makes."""
    pytest.importorskip("cryptography", reason="makes certificates: pip install 'fluidtool[dist]'")
    job = transpile_as_told(write_programs(tmp_path_factory.mktemp("job")), FOLDER / request.param)
    blueprint = draw(job)
    assert (blueprint.endpoints == SERVERS) == (request.param == "jobset.yaml")
    roles = [member.name for member in blueprint.cluster(blueprint.endpoints).members()]
    assert all((job / role / "tls" / "key.pem").is_file() for role in roles)
    return roles


def test_every_role_of_the_job_has_a_pod(members: list[str]) -> None:
    found = [
        parsed(pod(name, index)[0])["role"]
        for name, job in replicated().items()
        for index in range(job["template"]["spec"]["completions"])
    ]
    assert found == members


@pytest.mark.parametrize("name", ["pserver", "trainer"])
def test_pods_resume_and_count_their_restarts(name: str) -> None:
    words, environment = pod(name, 1)
    found = parsed(words)
    assert found["resume"] and str(found["checkpoint"]) == "/shared/checkpoints"
    assert (str(found["job"]), found["metrics"]) == ("/shared/job", "0.0.0.0:9400")
    assert "--force" in found["arguments"]  # a trainer that is restarted after it saved saves again
    assert environment["FLUIDTOOL_RESTARTS"] == "2"


def test_pods_have_the_names_that_endpoints_have() -> None:
    """NAME-JOB-0-INDEX, in the subdomain that has the name of the JobSet."""
    name = job_set()["metadata"]["name"]
    hosts = [f"{name}-pserver-0-{index}.{name}" for index in range(2)]
    assert tuple(f"{host}:6174" for host in hosts) == SERVERS
    assert job_set()["spec"]["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}


def test_all_roles_are_restarted_together() -> None:
    policy = job_set()["spec"]["failurePolicy"]
    assert policy["restartStrategy"] == "BlockingRecreate" and policy["maxRestarts"] > 0
    for job in replicated().values():
        spec = job["template"]["spec"]
        assert (spec["backoffLimit"], spec["completionMode"]) == (0, "Indexed")
        assert spec["completions"] == spec["parallelism"]
        assert spec["template"]["spec"]["restartPolicy"] == "Never"


def test_a_drained_node_waits_and_costs_no_restart() -> None:
    budget = documents("jobset.yaml")[1]
    jobs = [job["template"]["spec"] for job in replicated().values()]
    assert budget["spec"]["minAvailable"] == sum(spec["completions"] for spec in jobs)
    labels = budget["spec"]["selector"]["matchLabels"]
    assert all(spec["template"]["metadata"]["labels"].items() >= labels.items() for spec in jobs)
    (rule,) = job_set()["spec"]["failurePolicy"]["rules"]
    assert (rule["action"], rule["onJobFailureReasons"]) == ("RestartJobSetAndIgnoreMaxRestarts", ["PodFailurePolicy"])
    assert all(spec["podFailurePolicy"]["rules"][0]["action"] == "FailJob" for spec in jobs)


def test_probes_ask_ports_that_the_role_has() -> None:
    for job in replicated().values():
        (container,) = job["template"]["spec"]["template"]["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports == {"roles": 6174, "metrics": 9400}
        assert {"startupProbe", "livenessProbe"} <= container.keys()
        probes = [each for name, each in container.items() if name.endswith("Probe")]
        assert all((probe.get("httpGet") or probe["tcpSocket"])["port"] in ports for probe in probes)


def test_every_container_says_what_it_needs() -> None:
    for spec in pod_specs():
        assert spec["securityContext"]["runAsNonRoot"]
        for container in spec["containers"]:
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]
            assert {mount["name"] for mount in container["volumeMounts"]} == {
                volume["name"] for volume in spec["volumes"]
            }


# ---------------------------------------------------------------- Ray
def test_the_ray_job_launches_on_its_cluster_and_resumes() -> None:
    spec = ray_job()["spec"]
    found = parsed(shlex.split(spec["entrypoint"]))
    assert (found["engine"], found["ray_address"], found["restarts"], found["resume"]) == ("ray", "auto", 20, True)
    assert list(found["arguments"][:2]) == ["--data", "/shared/data.npz"] and spec["backoffLimit"] > 0


def test_the_ray_cluster_has_a_cpu_for_every_role(members: list[str]) -> None:
    (workers,) = ray_job()["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    cpus = int(workers["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"])
    assert workers["replicas"] * cpus == len(members)


def test_there_are_no_other_manifests() -> None:
    assert sorted(path.name for path in Path(FOLDER).iterdir()) == ["jobset.yaml", "kuberay.yaml"]
