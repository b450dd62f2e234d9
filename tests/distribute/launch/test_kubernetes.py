"""The sample manifests for Kubernetes: valid by schema, and each pod plays the role that it should."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from fluidtool.cli.app import Commands
from fluidtool.distribute.launch.blueprint import draw
from fluidtool.distribute.rpc.handler import BothLost
from fluidtool.distribute.rpc.options import TransportOptions
from tests.distribute.launch.jobs import transpile_as_told, write_programs
from tests.support.checkout import ROOT

FOLDER = ROOT / "samples" / "kubernetes"
JOB_SETS = ("elastic.yaml", "jobset.yaml", "replicas.yaml")
SERVERS = ("digits-pserver-0-0.digits:6174", "digits-pserver-0-1.digits:6174")
RELEASE = "1.33"  # of Kubernetes


def documents(name: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((FOLDER / name).read_text()) if each]


def job_set(name: str = "jobset.yaml") -> dict[str, Any]:
    return documents(name)[0]


def ray_job() -> dict[str, Any]:
    return documents("kuberay.yaml")[0]


def replicated(name: str = "jobset.yaml") -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in job_set(name)["spec"]["replicatedJobs"]}


def pod_template(manifest: str, name: str) -> dict[str, Any]:
    """Of the pods of one kind of role."""
    return dict(replicated(manifest)[name]["template"]["spec"]["template"])


def budgets(manifest: str) -> list[dict[str, Any]]:
    return [each["spec"] for each in documents(manifest)[1:]]


def pod_specs() -> list[dict[str, Any]]:
    """Those of all manifests."""
    cluster = ray_job()["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    jobs = [pod_template(manifest, name)["spec"] for manifest in JOB_SETS for name in replicated(manifest)]
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


@pytest.mark.parametrize(
    ("document", "schema"),
    [*((job_set(name), JOB_SET) for name in JOB_SETS), (ray_job(), RAY_JOB)],
    ids=[*JOB_SETS, "kuberay.yaml"],
)
def test_what_jobset_and_kuberay_read_is_valid(document: dict[str, Any], schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(document, schema)


def test_a_wrong_key_is_found() -> None:
    document = job_set()
    document["spec"]["failurePolicy"]["restarts"] = 3
    with pytest.raises(jsonschema.ValidationError, match="restarts"):
        jsonschema.validate(document, JOB_SET)


def own_documents() -> list[dict[str, Any]]:
    """What Kubernetes itself defines: budgets, and what is inside of a JobSet and a RayJob."""
    sets = [each for manifest in JOB_SETS for each in replicated(manifest).values()]
    jobs = [{"apiVersion": "batch/v1", "kind": "Job", **each["template"]} for each in sets]
    pods = [{"apiVersion": "v1", "kind": "Pod", "spec": spec} for spec in pod_specs()]
    return [*(each for manifest in JOB_SETS for each in documents(manifest)[1:]), *jobs, *pods]


@pytest.mark.parametrize("document", own_documents(), ids=lambda document: document["kind"])
def test_what_is_kubernetes_own_is_valid(document: dict[str, Any]) -> None:
    reason = "has the schemas of Kubernetes: pip install kubernetes-validate"
    validate = pytest.importorskip("kubernetes_validate", reason=reason)
    validate.validate({"metadata": {"name": "x"}, **document}, RELEASE, strict=True)


# ---------------------------------------------------------------- JobSets
INDEX, ATTEMPT = "batch.kubernetes.io/job-completion-index", "jobset.sigs.k8s.io/restart-attempt"
FAILURES, EVICTIONS = (
    "batch.kubernetes.io/job-index-failure-count",
    "batch.kubernetes.io/job-index-ignored-failure-count",
)
JOB_UID = "jobset.sigs.k8s.io/jobset-uid"
FIRST_TIME = {
    ATTEMPT: "2",
    FAILURES: "0",
    JOB_UID: "3f1c",
}  # an index that was never evicted has no number of evictions


def pod(name: str, index: int, manifest: str = "jobset.yaml", **about: str) -> tuple[list[str], dict[str, str]]:
    """The command and environment of a pod, as Kubernetes makes them. about: annotations unlike those of a first start."""
    (container,) = pod_template(manifest, name)["spec"]["containers"]
    found: dict[str, str] = {}
    fields = {INDEX: str(index), **FIRST_TIME, **about}
    for entry in container["env"]:
        if "valueFrom" in entry:
            path = entry["valueFrom"]["fieldRef"]["fieldPath"]
            found[entry["name"]] = fields.get(re.search(r"\['(.*)'\]$", path)[1], "")  # type: ignore[index]
        else:
            found[entry["name"]] = filled(entry["value"], found)
    return [filled(word, found) for word in container["command"]], found


def called(words: list[str], environment: dict[str, str], folder: Path) -> list[str]:
    """The call of fluidtool that a command makes, which may be of a shell."""
    if words[0] == "fluidtool":
        return words
    if shutil.which(words[0]) is None:
        pytest.skip("there is no bash here")
    stand_in = folder / "fluidtool"
    stand_in.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(['fluidtool', *sys.argv[1:]]))\n")
    stand_in.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return list(json.loads(subprocess.check_output(words, env={**environment, "PATH": path}, text=True)))


def indices(manifest: str, name: str) -> range:
    return range(replicated(manifest)[name]["template"]["spec"]["completions"])


def filled(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], text)


def parsed(words: list[str]) -> dict[str, Any]:
    """What the command line makes of the words; they must be a command of fluidtool."""
    assert words[0] == "fluidtool"
    command = Commands().get_command(None, words[1])
    return dict(command.make_context(words[1], words[2:]).params)


@pytest.fixture(scope="module", params=[*JOB_SETS, "kuberay.yaml"])
def members(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The roles of the job that the command in a manifest makes."""
    pytest.importorskip("cryptography", reason="makes certificates: pip install 'fluidtool[dist]'")
    job = transpile_as_told(write_programs(tmp_path_factory.mktemp("job")), FOLDER / request.param)
    blueprint = draw(job)
    assert (blueprint.endpoints == SERVERS) == (request.param != "kuberay.yaml")
    roles = [member.name for member in blueprint.cluster(blueprint.endpoints).members()]
    assert all((job / role / "tls" / "key.pem").is_file() for role in roles)
    return roles


@pytest.mark.parametrize("manifest", JOB_SETS)
def test_every_role_of_the_job_has_a_pod(members: list[str], manifest: str, tmp_path: Path) -> None:
    found = [
        parsed(called(*pod(name, index, manifest), tmp_path))["role"]
        for name in replicated(manifest)
        for index in indices(manifest, name)
    ]
    second = ["pserver_0_replica", "pserver_1_replica"] if manifest == "replicas.yaml" else []
    assert sorted(found) == sorted([*members, *second])


@pytest.mark.parametrize("name", ["pserver", "trainer"])
@pytest.mark.parametrize("manifest", JOB_SETS)
def test_pods_resume_and_count_their_restarts(manifest: str, name: str, tmp_path: Path) -> None:
    words, environment = pod(name, 1, manifest)
    found = parsed(called(words, environment, tmp_path))
    assert found["resume"] and str(found["checkpoint"]) == "/shared/checkpoints"
    assert (str(found["job"]), found["metrics"]) == ("/shared/job", "0.0.0.0:9400")
    assert "--force" in found["arguments"]  # a trainer that is restarted after it saved saves again
    is_alone = manifest == "replicas.yaml" or (manifest, name) == ("elastic.yaml", "trainer")  # is started again alone
    assert environment["FLUIDTOOL_RESTARTS"] == ("0" if is_alone else "2")


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


@pytest.mark.parametrize("manifest", JOB_SETS)
def test_probes_ask_ports_that_the_role_has(manifest: str) -> None:
    for name in replicated(manifest):
        (container,) = pod_template(manifest, name)["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports == {"roles": 6174, "metrics": 9400}
        assert {"startupProbe", "livenessProbe"} <= container.keys()
        assert ("readinessProbe" in container) == (name != "trainer")
        probes = [each for key, each in container.items() if key.endswith("Probe")]
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


# ---------------------------------------------------------------- elastic, with one copy of each server or two
ELASTIC = ("elastic.yaml", "replicas.yaml")


@pytest.mark.parametrize("manifest", ELASTIC)
def test_trainers_of_an_elastic_job_are_started_again_alone(manifest: str, tmp_path: Path) -> None:
    spec = replicated(manifest)["trainer"]["template"]["spec"]
    assert spec["backoffLimitPerIndex"] > 0 and "backoffLimit" not in spec
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert spec["completions"] == spec["parallelism"]  # else they could not be changed
    (rule,) = spec["podFailurePolicy"]["rules"]
    assert rule["action"] == "Ignore" and rule["onPodConditions"][0]["type"] == "DisruptionTarget"
    found = parsed(called(*pod("trainer", 0, manifest), tmp_path))
    assert found["elastic"] == 2 <= spec["completions"]


@pytest.mark.parametrize("manifest", ELASTIC)
def test_as_many_trainers_stay_as_the_job_needs(manifest: str, tmp_path: Path) -> None:
    (budget,) = [each for each in budgets(manifest) if each["selector"]["matchLabels"]["kind"] == "trainer"]
    assert budget["minAvailable"] == parsed(called(*pod("trainer", 0, manifest), tmp_path))["elastic"]
    assert selects(budget["selector"], pod_template(manifest, "trainer")["metadata"]["labels"])


def test_servers_with_one_copy_are_restarted_with_all_roles_and_are_not_evicted() -> None:
    spec = replicated("elastic.yaml")["pserver"]["template"]["spec"]
    assert spec["backoffLimit"] == 0 and spec["podFailurePolicy"]["rules"][0]["action"] == "FailJob"
    policy = job_set("elastic.yaml")["spec"]["failurePolicy"]
    assert policy["restartStrategy"] == "BlockingRecreate" and policy["maxRestarts"] > 0
    assert policy["rules"][0]["targetReplicatedJobs"] == ["pserver"]
    (budget,) = [each for each in budgets("elastic.yaml") if each["selector"]["matchLabels"]["kind"] == "pserver"]
    assert budget["minAvailable"] == spec["completions"]


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    return selector["matchLabels"].items() <= labels.items()


def labels_of(name: str, index: int) -> dict[str, str]:
    """Of a pod of the job with replicas; Kubernetes adds the index."""
    return {**pod_template("replicas.yaml", name)["metadata"]["labels"], INDEX: str(index)}


def excludes(first: tuple[str, int], second: tuple[str, int]) -> bool:
    """Whether the first pod may not be where the second one is."""
    rules = pod_template("replicas.yaml", first[0])["spec"].get("affinity", {}).get("podAntiAffinity", {})
    required = rules.get("requiredDuringSchedulingIgnoredDuringExecution", [])
    own, others = labels_of(*first), labels_of(*second)
    return any(
        rule["topologyKey"] == "kubernetes.io/hostname"
        and selects(rule["labelSelector"], others)
        and all(own[key] == others[key] for key in rule["matchLabelKeys"])
        for rule in required
    )


@pytest.mark.parametrize("index", [0, 1])
def test_the_copies_of_a_server_are_on_different_nodes(index: int) -> None:
    assert excludes(("pserver", index), ("replica", index))
    assert excludes(("replica", index), ("pserver", index))


def test_two_nodes_are_enough_for_all_servers_and_trainers() -> None:
    assert not excludes(("pserver", 0), ("replica", 1)) and not excludes(("pserver", 0), ("pserver", 1))
    assert not any(excludes((server, 0), ("trainer", 0)) for server in ("pserver", "replica"))
    assert not any(excludes(("trainer", 0), (server, 0)) for server in ("pserver", "replica", "trainer"))


def test_a_drained_node_takes_one_copy_along_at_a_time() -> None:
    (budget,) = [each for each in budgets("replicas.yaml") if each["selector"]["matchLabels"]["kind"] == "pserver"]
    servers = [("pserver", index) for index in range(2)] + [("replica", index) for index in range(2)]
    assert all(selects(budget["selector"], labels_of(*each)) for each in servers)
    assert budget["minAvailable"] == len(servers) - 1


def test_roles_know_the_pods_of_both_copies() -> None:
    pairs = [f"{server}={server.replace('pserver', 'replica')}" for server in SERVERS]
    for name in replicated("replicas.yaml"):
        _, environment = pod(name, 0, "replicas.yaml")
        assert environment["FLUIDTOOL_REPLICAS"] == ",".join(pairs)
        assert tuple(TransportOptions.from_environment(environment).replicas) == SERVERS


def test_copies_find_out_who_serves_in_a_folder_that_is_new_for_each_start_of_the_job() -> None:
    folders = {
        pod(name, 0, "replicas.yaml", **about)[1]["FLUIDTOOL_REPLICAS_DIR"]
        for name in replicated("replicas.yaml")
        for about in ({}, {FAILURES: "3"}, {EVICTIONS: "1"})
    }
    assert folders == {"/shared/who-serves/3f1c-2"}
    for about in ({ATTEMPT: "3"}, {JOB_UID: "77aa"}):
        assert pod("pserver", 0, "replicas.yaml", **about)[1]["FLUIDTOOL_REPLICAS_DIR"] not in folders


@pytest.mark.parametrize("about", [{FAILURES: "1"}, {EVICTIONS: "1"}], ids=["failed", "evicted"])
@pytest.mark.parametrize(("name", "resumes"), [("pserver", False), ("replica", False), ("trainer", True)])
def test_a_copy_that_is_started_again_copies_and_a_trainer_resumes(
    name: str, resumes: bool, about: dict[str, str], tmp_path: Path
) -> None:
    found = parsed(called(*pod(name, 1, "replicas.yaml", **about), tmp_path))
    assert found["resume"] is resumes and found["replicas"] == 2


def test_all_roles_are_restarted_where_both_copies_are_lost_and_otherwise_one() -> None:
    assert BothLost.exit_code == 3
    for name in ("pserver", "replica"):
        spec = replicated("replicas.yaml")[name]["template"]["spec"]
        lost, evicted = spec["podFailurePolicy"]["rules"]
        assert (lost["action"], lost["onExitCodes"]["values"]) == ("FailJob", [BothLost.exit_code])
        assert lost["onExitCodes"]["containerName"] == spec["template"]["spec"]["containers"][0]["name"]
        assert evicted["action"] == "Ignore" and spec["backoffLimitPerIndex"] > 0
    assert job_set("replicas.yaml")["spec"]["failurePolicy"]["maxRestarts"] > 0


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
    assert sorted(path.name for path in Path(FOLDER).iterdir()) == sorted([*JOB_SETS, "kuberay.yaml"])
