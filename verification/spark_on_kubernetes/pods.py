"""Pods as processes of this machine: what is here stands in for paths of the image and of volumes, and for services."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spark_on_kubernetes.api_server import ApiServer, Object

_SERVICE: Final = re.compile(r"[\w-]+-svc\.[\w-]+\.svc\b")
_POLL_S: Final = 0.05


class Pods:
    """Starts and stops the pods of an API server, and tells it how they end.

    Args:
        folder: For the volumes and the logs of the pods.
        image: What is here in the place of each path of the image.
        environment: The environment of the image.
        secrets: The content of the secrets, by their names and keys.

    Attributes:
        processes: The processes of the pods, by the names of the pods.
    """

    def __init__(
        self,
        folder: Path,
        image: Mapping[str, Path],
        environment: Mapping[str, str],
        secrets: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._folder = folder
        self._image = image
        self._environment = environment
        self._secrets = secrets
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, api: ApiServer, pod: Object) -> None:
        """Start a pod, once the config maps are there that it mounts."""
        threading.Thread(target=self._run, args=(api, pod), daemon=True).start()

    def stop(self, name: str) -> None:
        if name in self.processes and self.processes[name].poll() is None:
            os.killpg(self.processes[name].pid, signal.SIGTERM)

    def log_of(self, name: str) -> str:
        return (self._folder / name / "log").read_text()

    def _run(self, api: ApiServer, pod: Object) -> None:
        name = pod["metadata"]["name"]
        (container,) = pod["spec"]["containers"]
        folder = self._folder / name
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        here = {**self._image, **{path: folder / volume for volume, path in mounts.items()}}
        for volume in pod["spec"]["volumes"]:
            (folder / volume["name"]).mkdir(parents=True)
            for file, content in self._content(api, volume).items():
                (folder / volume["name"] / file).write_text(_here(content, here))
        environment = {each["name"]: _here(self._value(each, name), here) for each in container["env"]}
        arguments = [_here(each, here) for each in container["args"]]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                _entry_point(arguments, environment, self._image["/opt/spark"]),
                env={**self._environment, **environment},
                cwd=folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes[name] = process
        _tell(api, pod, "Running", {"running": {}})
        code = process.wait()
        if api.get("pods", name) is not None:
            _tell(api, pod, "Failed" if code else "Succeeded", {"terminated": {"exitCode": code}})

    def _content(self, api: ApiServer, volume: Object) -> Mapping[str, str]:
        """Return the files of a volume. Spark makes the config map of a driver after the driver."""
        if "secret" in volume:
            return self._secrets[volume["secret"]["secretName"]]
        if "configMap" not in volume:
            return {}
        while (found := api.get("configmaps", volume["configMap"]["name"])) is None:
            time.sleep(_POLL_S)
        return found["data"]

    def _value(self, variable: Object, pod: str) -> str:
        if "valueFrom" not in variable:
            return variable.get("value", "")
        if secret := variable["valueFrom"].get("secretKeyRef"):
            return self._secrets[secret["name"]][secret["key"]]
        return {"status.podIP": "127.0.0.1", "metadata.name": pod}[variable["valueFrom"]["fieldRef"]["fieldPath"]]


def _here(text: str, here: Mapping[str, Path]) -> str:
    """Return a text with paths and services of this machine, the longest paths first."""
    for path in sorted(here, key=len, reverse=True):
        text = text.replace(path, str(here[path]))
    return _SERVICE.sub("localhost", text)


def _entry_point(arguments: list[str], environment: Mapping[str, str], spark_home: Path) -> list[str]:
    """Return the command that the entry point of Spark's image runs."""
    if arguments[0] == "driver":
        bind = f"spark.driver.bindAddress={environment['SPARK_DRIVER_BIND_ADDRESS']}"
        return [str(spark_home / "bin" / "spark-submit"), "--conf", bind, "--deploy-mode", "client", *arguments[1:]]
    options = [value for name, value in environment.items() if name.startswith("SPARK_JAVA_OPT_")]
    memory = environment["SPARK_EXECUTOR_MEMORY"]
    return [
        *("java", *options, f"-Xms{memory}", f"-Xmx{memory}"),
        *("-cp", f"{environment['SPARK_CONF_DIR']}:{spark_home}/jars/*"),
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", environment["SPARK_DRIVER_URL"]),
        *("--executor-id", environment["SPARK_EXECUTOR_ID"]),
        *("--cores", environment["SPARK_EXECUTOR_CORES"]),
        *("--app-id", environment["SPARK_APPLICATION_ID"]),
        *("--hostname", environment["SPARK_EXECUTOR_POD_IP"]),
        *("--resourceProfileId", environment["SPARK_RESOURCE_PROFILE_ID"]),
        *("--podName", environment["SPARK_EXECUTOR_POD_NAME"]),
    ]


def _tell(api: ApiServer, pod: Object, phase: str, state: Object) -> None:
    (container,) = pod["spec"]["containers"]
    ready = phase == "Running"
    told = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0, "ready": ready}
    pod["status"] = {
        "phase": phase,
        "podIP": "127.0.0.1",
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [{**told, "state": state}],
    }
    api.change("pods", pod)
