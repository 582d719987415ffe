"""The Helm chart: what it renders is valid for Kubernetes, and fits what the program reads, serves and writes."""

from __future__ import annotations

import asyncio
import functools
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator
from kubernetes_validate import utils
from prometheus_client.registry import Collector

from streamad.commands.shared.plants import check_parts
from streamad.notify.service import STOP_S
from streamad.plant import Plant
from streamad.runtime.metrics import MetricsServer
from streamad.settings.outputs import split_address
from streamad.settings.plant_yaml import Settings, load_settings
from streamad.system.clock import SystemClock
from streamad.web.access import known_hosts
from tests.support.command_lines import parsed
from tests.support.kubernetes.crds import schema_of
from tests.support.kubernetes.helm import CHART, rendered, run_helm
from tests.support.web.page import PageUnderTest

DEPLOY = CHART.parents[1]
CASES = {
    "all on": ("--values", f"{CHART}/ci/all-on.yaml"),
    "all off": ("--values", f"{CHART}/ci/all-off.yaml"),
    "odd": ("--values", f"{CHART}/ci/odd.yaml"),
    "numbers": (
        "--values",
        f"{CHART}/ci/all-on.yaml",
        "--set-string",
        "fullnameOverride=7,nameOverride=1e3,registry.existingClaim=models",
    ),
    "as the README says": ("--set-file", f"plant={DEPLOY}/plant.kafka.yaml"),
}
RELEASES = {"numbers": "12", "odd": "a-release-name-of-as-many-characters-as-helm-allows-5"}
COMMANDS = {"workers": "run", "learn": "learn", "web": "web", "notify": "notify"}
WORKLOADS = ("StatefulSet", "Deployment")
Object = dict[str, Any]


class Part(NamedTuple):
    """A workload, and its container with all values in place."""

    name: str
    workload: Object
    pod: Object
    container: Object

    @property
    def environment(self) -> dict[str, str]:
        return {each["name"]: each["value"] for each in self.container["env"] if "value" in each}


@pytest.fixture(scope="module", params=CASES)
def objects(request: pytest.FixtureRequest) -> list[Object]:
    return rendered(*CASES[request.param], release=RELEASES.get(request.param, "press"))


@pytest.fixture(scope="module")
def all_on() -> list[Object]:
    return rendered(*CASES["all on"])


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    return [each for each in objects if each["kind"] in kinds]


def parts(objects: list[Object]) -> Iterator[Part]:
    for workload in of_kind(objects, *WORKLOADS):
        template = workload["spec"]["template"]
        name = template["metadata"]["labels"]["app.kubernetes.io/component"]
        (container,) = template["spec"]["containers"]
        yield Part(name, workload, template["spec"], container)


def settings_of(objects: list[Object], part: Part, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return the plant as the container of ``part`` reads it."""
    text = next(each["data"]["plant.yaml"] for each in objects if "plant.yaml" in each.get("data", {}))
    (folder / "plant.yaml").write_text(text, encoding="utf-8")
    for name, value in part.environment.items():
        if name.startswith("STREAMAD_"):
            monkeypatch.setenv(name, value)
    return load_settings(folder / "plant.yaml")


# --- what Kubernetes reads ---


@pytest.mark.parametrize("case", CASES)
def test_helm_finds_nothing_to_mend(case: str) -> None:
    done = run_helm("lint", "--strict", str(CHART), *CASES[case])
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search(r"\[(WARNING|ERROR)\]", done.stdout)


@pytest.mark.parametrize("version", ["1.25", utils.latest_version()])
def test_each_object_is_valid_and_none_is_of_an_unknown_kind(
    objects: list[Object], version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(utils, "schema_contents", functools.cache(utils.schema_contents))
    for each in objects:
        if each["apiVersion"].endswith(("coreos.com/v1", "gateway.networking.k8s.io/v1", "keda.sh/v1alpha1")):
            Draft202012Validator(schema_of(each["apiVersion"], each["kind"])).validate(each)
        else:
            kubernetes_validate.validate(each, version, strict=True)


def test_the_schemas_of_custom_resources_refuse_a_misspelt_key(all_on: list[Object]) -> None:
    for kind, *path in (
        ("ServiceMonitor", "spec", "endpoints"),
        ("PrometheusRule", "spec", "groups"),
        ("HTTPRoute", "spec", "rules"),
        ("ScaledObject", "spec", "triggers"),
    ):
        (one,) = json.loads(json.dumps(of_kind(all_on, kind)))
        place = functools.reduce(lambda inside, key: inside[key], path, one)
        place[0]["misspelt"] = "1"
        assert not Draft202012Validator(schema_of(one["apiVersion"], kind)).is_valid(one), kind


def test_names_and_labels_are_as_long_as_kubernetes_takes_them(objects: list[Object]) -> None:
    for each in objects:
        name, most = each["metadata"]["name"], 52 if each["kind"] == "StatefulSet" else 63
        assert re.fullmatch(rf"[a-z0-9]([a-z0-9-]{{0,{most - 2}}}[a-z0-9])?", name), name
        for value in each["metadata"]["labels"].values():
            assert re.fullmatch(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", value), value
    assert len({(each["kind"], each["metadata"]["name"]) for each in objects}) == len(objects)


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


def test_each_selector_finds_the_pods_of_one_part_and_each_port_is_one_of_theirs(objects: list[Object]) -> None:
    found = list(parts(objects))
    labels = {part.name: part.workload["spec"]["template"]["metadata"]["labels"] for part in found}
    ports = {part.name: {port["name"] for port in part.container.get("ports", [])} for part in found}
    for part in found:
        assert selects(part.workload["spec"]["selector"]["matchLabels"], labels[part.name])
    for each in of_kind(objects, "Service", "PodDisruptionBudget", "NetworkPolicy"):
        spec = each["spec"]
        selector = spec.get("podSelector", spec.get("selector"))
        (name,) = [name for name in labels if selects(selector.get("matchLabels", selector), labels[name])]
        assert each["metadata"]["name"].endswith(f"-{name}")
        named = [port.get("targetPort") for port in spec.get("ports", [])]
        named += [port["port"] for rule in spec.get("ingress", []) for port in rule["ports"]]
        assert set(named) <= ports[name]
    for stateful in of_kind(objects, "StatefulSet"):
        assert stateful["spec"]["serviceName"] in [each["metadata"]["name"] for each in of_kind(objects, "Service")]


def test_each_claim_that_is_mounted_is_made_or_yours(objects: list[Object]) -> None:
    made = {each["metadata"]["name"] for each in of_kind(objects, "PersistentVolumeClaim")}
    claims = {
        volume["persistentVolumeClaim"]["claimName"]
        for part in parts(objects)
        for volume in part.pod["volumes"]
        if "persistentVolumeClaim" in volume
    }
    assert made <= claims
    assert claims - made <= {"models", "stored-sequences", "view"}


def test_the_values_that_the_readme_shows_are_taken(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", (CHART / "README.md").read_text(), re.DOTALL)
    (tmp_path / "values.yaml").write_text(block)
    kinds = {each["kind"] for each in rendered(*CASES["all on"], "--values", str(tmp_path / "values.yaml"))}
    assert {"HTTPRoute", "ScaledObject", "ServiceMonitor"} <= kinds


# --- what the containers may do ---


def test_pods_run_as_the_user_of_the_image_and_may_do_nothing_else(objects: list[Object]) -> None:
    (user,) = re.findall(r"^USER (\d+):(\d+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    for part in parts(objects):
        pod = part.pod["securityContext"]
        assert (str(pod["runAsUser"]), str(pod["runAsGroup"]), str(pod["fsGroup"])) == (*user, user[1])
        assert pod["runAsNonRoot"] is True
        assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert part.pod["automountServiceAccountToken"] is False
        for container in [part.container, *part.pod.get("initContainers", [])]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_what_a_part_writes_is_on_a_volume_that_it_may_write(
    objects: list[Object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in parts(objects):
        with monkeypatch.context() as environment:
            settings = settings_of(objects, part, tmp_path, environment)
        writable = {each["mountPath"] for each in part.container["volumeMounts"] if not each.get("readOnly")}
        written = {"/tmp"}
        if part.name == "web":
            written |= {str(settings.web.view)} | ({str(settings.web.auth.users)} - {"None"})
        if part.name == "learn" and settings.learning is not None:
            written.add(str(settings.learning.store))
        if part.name == "learn" or (part.name == "web" and settings.web.allow == "models"):
            written.add(str(settings.model.registry))
        if ":/" in str(settings.model.registry):
            written.add(str(settings.model.cache))
        written -= {each for each in written if ":/" in each}  # an object store
        tops = {next((top for top in writable if each == top or each.startswith(f"{top}/")), each) for each in written}
        assert tops == writable, part.name
        assert part.environment["HOME"] in writable


def test_a_claim_that_is_read_is_mounted_read_only(all_on: list[Object]) -> None:
    mounts = {
        part.name: {each["name"]: each.get("readOnly", False) for each in part.container["volumeMounts"]}
        for part in parts(all_on)
    }
    assert {name: each["registry"] for name, each in mounts.items()} == {
        "workers": True, "learn": False, "web": False, "notify": True,
    }  # fmt: skip


# --- what the program reads and serves ---


def test_the_plant_is_valid_in_each_container(
    objects: list[Object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in parts(objects):
        with monkeypatch.context() as environment:
            settings = settings_of(objects, part, tmp_path, environment)
        assert check_parts(Plant(settings, tmp_path, SystemClock())) == []
        if part.name != "workers":
            assert settings.learning is None or settings.learning.process == "elsewhere"


def test_the_text_of_the_plant_arrives_unchanged() -> None:
    text = yaml.safe_load(Path(CASES["odd"][1]).read_text())["plant"]
    (found,) = [each["data"]["plant.yaml"] for each in of_kind(rendered(*CASES["odd"]), "ConfigMap")]
    assert found == text


def test_each_command_line_is_one_of_ours_and_a_worker_is_named_as_its_pod(objects: list[Object]) -> None:
    for part in parts(objects):
        arguments = part.container["args"]
        assert parsed(arguments) == COMMANDS[part.name]
        assert arguments[arguments.index("--config") + 1] == "/etc/streamad/plant.yaml"
        if part.name == "workers":
            assert arguments[-2:] == ["--instance", "$(POD_NAME)"]
            assert {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}} in part.container[
                "env"
            ]


def probes(part: Part) -> dict[str, Any]:
    return {name: each["httpGet"] for name, each in part.container.items() if name.endswith("Probe")}


class Nothing(Collector):
    def collect(self) -> Iterator[Any]:
        yield from ()


async def test_workers_and_learner_serve_what_is_probed_and_scraped(
    all_on: list[Object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = MetricsServer("127.0.0.1:0", Nothing(), lambda: True)
    try:
        for part in parts(all_on):
            if part.name not in {"workers", "learn"}:
                continue
            with monkeypatch.context() as environment:
                listen = settings_of(all_on, part, tmp_path, environment).metrics.listen
            assert listen is not None
            assert part.container["ports"] == [{"name": "metrics", "containerPort": split_address(listen)[1]}]
            assert set(probes(part)) == {"startupProbe", "livenessProbe", "readinessProbe"}
            (monitor,) = of_kind(all_on, "ServiceMonitor")
            paths = [each["path"] for each in probes(part).values()] + [monitor["spec"]["endpoints"][0]["path"]]
            assert {each["port"] for each in probes(part).values()} == {"metrics"}
            for path in paths:
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                assert b" 200 " in await reader.readline(), path
                writer.close()
    finally:
        await server.close()


@pytest.mark.parametrize("case", ["all on", "odd"])
def test_the_page_answers_its_probes_and_the_names_of_its_routes(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = rendered(*CASES[case])
    (part,) = [each for each in parts(objects) if each.name == "web"]
    with monkeypatch.context() as environment:
        settings = settings_of(objects, part, tmp_path, environment)
    assert part.container["ports"] == [{"name": "web", "containerPort": settings.web.port}]
    page = PageUnderTest(tmp_path, plant=Plant(settings, tmp_path, SystemClock()))
    for probe in probes(part).values():
        headers = {each["name"]: each["value"] for each in probe["httpHeaders"]}
        assert page.stranger("10.1.2.3", **headers).get(probe["path"]).status_code == 200
        assert probe["scheme"] == ("HTTP" if settings.web.tls is None else "HTTPS")
    named = {name for each in of_kind(objects, "HTTPRoute") for name in each["spec"]["hostnames"]}
    named |= {rule["host"] for each in of_kind(objects, "Ingress") for rule in each["spec"]["rules"]}
    assert named <= known_hosts(settings.web.host, settings.web.port, settings.web.hosts)
    assert bool(named) == (case == "all on")


def test_a_pod_may_take_half_a_minute_longer_to_stop_than_the_plant(
    objects: list[Object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in parts(objects):
        with monkeypatch.context() as environment:
            settings = settings_of(objects, part, tmp_path, environment)
        grace_s = part.pod["terminationGracePeriodSeconds"]
        assert grace_s == math.ceil(settings.run.stop_timeout / 1e6) + 30
        assert grace_s > STOP_S + 20


# --- what watches it ---


def test_scaling_asks_for_the_lag_that_workers_report_and_for_nothing_of_the_group(all_on: list[Object]) -> None:
    (scaled,) = of_kind(all_on, "ScaledObject")
    (stateful,) = of_kind(all_on, "StatefulSet")
    assert scaled["spec"]["scaleTargetRef"]["name"] == stateful["metadata"]["name"]
    assert "replicas" not in stateful["spec"]
    (trigger,) = scaled["spec"]["triggers"]
    query = trigger["metadata"]["query"]
    # that a worker serves it: tests/unit/runtime/test_metrics.py
    assert re.findall(r"streamad_\w+", query) == ["streamad_source_lag_records"]
    (pods,) = re.findall(r'pod=~"([^"]+)"', query)
    assert re.fullmatch(pods, f"{stateful['metadata']['name']}-11")
    assert 'namespace="plant"' in query
    assert trigger["metadata"]["threshold"] == "2000000"


def test_prometheus_finds_all_metrics_under_the_job_that_the_rules_expect(all_on: list[Object]) -> None:
    (monitor,) = of_kind(all_on, "ServiceMonitor")
    selector = monitor["spec"]["selector"]["matchLabels"]
    found = [each for each in of_kind(all_on, "Service") if selects(selector, each["metadata"]["labels"])]
    assert sorted(each["metadata"]["name"] for each in found) == ["press-streamad-learn", "press-streamad-workers"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert all(endpoint["port"] in [port["name"] for port in each["spec"]["ports"]] for each in found)
    (job,) = [each["replacement"] for each in endpoint["relabelings"] if each["targetLabel"] == "job"]
    assert set(re.findall(r'job="(\w+)"', (DEPLOY / "prometheus/streamad.rules.yml").read_text())) == {job}


def test_rules_and_dashboards_are_those_of_deploy(all_on: list[Object]) -> None:
    (rules,) = of_kind(all_on, "PrometheusRule")
    assert rules["spec"] == yaml.safe_load((DEPLOY / "prometheus/streamad.rules.yml").read_text())
    (dashboards,) = [each["data"] for each in of_kind(all_on, "ConfigMap") if "plant.yaml" not in each["data"]]
    assert {name: json.loads(text) for name, text in dashboards.items()} == {
        f"streamad-{path.name}": json.loads(path.read_text()) for path in (DEPLOY / "grafana").glob("*.json")
    }


# --- what is refused ---


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--set", "plant="], "give the text of plant.yaml: --set-file plant=plant.yaml"),
        (["--set", "plant=a: [b"], "plant: is not YAML"),
        (["--set", "workers.replica=3"], "replica"),
        (["--set", "networkPolicy.enabled=maybe"], "networkPolicy"),
        (["--set-string", "plant=source: {url: live/*.csv}"], "write kafka://HOST:PORT/TOPIC"),
        (
            ["--set-string", "plant=source: {url: 'kafka://k:1/t'}\nsinks: {alerts: out/alerts.jsonl}"],
            'sinks.alerts: "out/alerts.jsonl": pods share no files',
        ),
        (["--set", "learn.enabled=true"], "the plant has no section learning"),
        (["--set", "web.enabled=true"], "write marks: kafka:///TOPIC"),
        (["--set", "notify.enabled=true"], "the plant names no notify.receivers"),
        (["--set", "web.route.enabled=true"], "parentRefs"),
        (["--set-string", "plant=source: {url: 'kafka://k:1/t'}\nrun: {stop_timeout: soon}"], "write for example 10s"),
    ],
    ids=lambda value: value[-1][:30] if isinstance(value, list) else "",
)
def test_values_that_cannot_work_are_refused_with_what_to_write(options: list[str], said: str) -> None:
    done = run_helm("template", "press", str(CHART), *CASES["all off"], *options)
    assert done.returncode != 0
    assert said in done.stderr


def test_a_page_that_anybody_could_open_is_refused() -> None:
    plant = "source: {url: 'kafka://k:1/t'}\nmarks: kafka:///m"
    done = run_helm("template", "press", str(CHART), "--set-string", f"plant={plant}", "--set", "web.enabled=true")
    assert "say who may open the page" in done.stderr


def leaves(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}")
    else:
        yield path


def test_values_and_their_schema_have_the_same_keys() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    def keys(part: dict[str, Any], path: str = "") -> Iterator[str]:
        for name, inner in part.get("properties", {}).items():
            yield f"{path}.{name}"
            yield from keys(inner, f"{path}.{name}")

    known = set(keys(schema)) - {".global"}
    assert all(any(each == key or each.startswith(f"{key}.") for key in known) for each in leaves(values))
    shown = {
        each for leaf in leaves(values) for each in (leaf[: at.start()] for at in re.finditer(r"\.|$", leaf)) if each
    }
    assert known <= shown
