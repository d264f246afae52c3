#!/usr/bin/env python3
"""Runs a suite of tests against the pinned NATS broker, with its resources capped, and leaves nothing behind.

The tests start and configure the broker themselves (crate `latent-testkit`). This program gives them the pinned server, puts every
server they start under one set of caps, runs them one after the other, and afterwards removes whatever is left: server processes or
containers, the control group, temporary files with TLS keys. It does so after success, failure, a crash of the broker, Ctrl-C and
SIGTERM, and ends with the exit status of the tests.

Python 3 standard library only. Needs Linux on x86_64.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

VERSION = "2.14.6"
DIGEST = "sha256:065e8355c20a5575b3c77224be1855e8103fd148b68fba05130b9b8ddfa40ccc"
MEMORY_BYTES = 256 * 1024 * 1024
PROCESSES = 64
CPU_PERIOD_MICROS = 100_000

# The suite's own target comes last; those before it run too where they exist.
SUITES = {
    "nats_events": [("latent-nats", "broker"), ("latent-wasmtime", "nats_events")],
    "nats_triggers": [("latent-nats", "triggers"), ("latent-wasmtime", "nats_triggers")],
}

EXIT_USAGE = 2
EXIT_NOT_BUILT = 3
EXIT_REFUSED = 4

CGROUPS_VAR = "LATENT_BROKER_CGROUP"
RUN_VAR = "LATENT_BROKER_RUN"
CONTAINER_LABEL = "latent-broker-run"
END_SECONDS = 10


class Refused(Exception):
    """This run must not happen; the message says why."""


def say(text):
    print(f"run_nats_event_tests: {text}", file=sys.stderr, flush=True)


def cargo():
    return os.environ.get("CARGO", "cargo")


def built_targets():
    """Every (package, test target) of the workspace."""
    command = [cargo(), "metadata", "--no-deps", "--format-version", "1"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    return {
        (package["name"], target["name"])
        for package in metadata["packages"]
        for target in package["targets"]
        if "test" in target["kind"]
    }


# Caps. Each kind has `environment`, what the tests are given, `describe`, and `remove`.


class ControlGroups:
    """Control groups of the kernel, version 1 or 2, where this user may make them."""

    def __init__(self, folders):
        self.folders = folders

    @classmethod
    def make(cls, run, root=Path("/sys/fs/cgroup")):
        """The groups, or None where they cannot be made or limited."""
        name = f"latent-nats-{run}"
        if (root / "cgroup.controllers").exists():
            settings = {
                "memory.max": str(MEMORY_BYTES),
                "pids.max": str(PROCESSES),
                "cpu.max": f"{CPU_PERIOD_MICROS} {CPU_PERIOD_MICROS}",
            }
            wanted = [(root / name, settings)]
        else:
            wanted = [
                (root / "memory" / name, {"memory.limit_in_bytes": str(MEMORY_BYTES)}),
                (root / "pids" / name, {"pids.max": str(PROCESSES)}),
                (root / "cpu" / name, {"cpu.cfs_period_us": str(CPU_PERIOD_MICROS), "cpu.cfs_quota_us": str(CPU_PERIOD_MICROS)}),
            ]
        groups = cls([])
        try:
            for folder, settings in wanted:
                folder.mkdir()
                groups.folders.append(folder)
                for file, value in settings.items():
                    # Not created when it is not there: a missing file means a missing controller.
                    with open(folder / file, "r+", encoding="ascii") as setting:
                        setting.write(value)
                    if (folder / file).read_text(encoding="ascii").split() != value.split():
                        raise OSError(f"{folder / file} did not take {value}")
                if not os.access(folder / "cgroup.procs", os.W_OK):
                    raise OSError(f"{folder} takes no processes")
        except OSError as error:
            say(f"no control groups: {error}")
            groups.remove()
            return None
        return groups

    def environment(self):
        return {CGROUPS_VAR: ":".join(map(str, self.folders))}

    def describe(self):
        return f"control groups {', '.join(map(str, self.folders))}"

    def remove(self):
        for folder in self.folders:
            until = time.monotonic() + END_SECONDS
            while folder.exists():
                try:
                    for pid in (folder / "cgroup.procs").read_text(encoding="ascii").split():
                        kill(int(pid))
                    folder.rmdir()
                except OSError as error:
                    if time.monotonic() > until:
                        say(f"LEFT BEHIND: {folder}: {error}")
                        break
                    time.sleep(0.02)


class Container:
    """The pinned image, run by docker, behind an executable that looks like the server."""

    def __init__(self, run, wrapper):
        self.run = run
        self.wrapper = wrapper

    @classmethod
    def make(cls, run, folder, image):
        """The wrapper, or None where no docker daemon answers."""
        if not docker_answers():
            return None
        require_pinned(image)
        subprocess.run(["docker", "pull", "--quiet", "--platform", "linux/amd64", image], check=True, stdout=sys.stderr)
        inspect = ["docker", "image", "inspect", "--format", "{{json .RepoDigests}}", image]
        digests = json.loads(subprocess.run(inspect, check=True, stdout=subprocess.PIPE).stdout)
        if not any(digest.endswith(f"@{DIGEST}") for digest in digests):
            raise Refused(f"docker holds {digests} as {image}, not {DIGEST}")
        # The host's process ids and network, and this user: the tests signal the server and read what it writes.
        arguments = [
            "docker", "run", "--rm", "--network", "host", "--pid", "host", "--user", f"{os.getuid()}:{os.getgid()}",
            "--label", f"{CONTAINER_LABEL}={run}", "--memory", str(MEMORY_BYTES), "--memory-swap", str(MEMORY_BYTES),
            "--cpus", "1", "--pids-limit", str(PROCESSES), "--log-driver", "none", "--volume", f"{folder}:{folder}", image,
        ]  # fmt: skip
        wrapper = folder / "nats-server-in-docker"
        wrapper.write_text("#!/bin/sh\nexec " + " ".join(map(quoted, arguments)) + ' "$@"\n', encoding="ascii")
        wrapper.chmod(0o700)
        return cls(run, wrapper)

    def environment(self):
        return {"LATENT_NATS_SERVER": str(self.wrapper)}

    def describe(self):
        return f"container of nats@{DIGEST}"

    def remove(self):
        listing = ["docker", "ps", "--all", "--quiet", "--filter", f"label={CONTAINER_LABEL}={self.run}"]
        left = subprocess.run(listing, check=False, stdout=subprocess.PIPE, text=True).stdout.split()
        if left:
            subprocess.run(["docker", "rm", "--force", *left], check=False, stdout=sys.stderr)


class NoCaps:
    """Nothing caps the broker. Said loudly, never silently."""

    def environment(self):
        return {}

    def describe(self):
        return "NO CAPS ARE IN FORCE: neither control groups nor docker can be used here; this run shows nothing about bounds"

    def remove(self):
        pass


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def require_pinned(image):
    if not image.endswith(f"@{DIGEST}"):
        raise Refused(f"{image} is not the pinned image nats@{DIGEST}")


def docker_answers():
    if shutil.which("docker") is None:
        return False
    try:
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.run(["docker", "info"], check=False, timeout=30, **silent).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def make_caps(kind, run, folder, image):
    require_pinned(image)
    caps = None
    if kind in ("auto", "cgroup"):
        caps = ControlGroups.make(run)
    if caps is None and kind in ("auto", "docker"):
        caps = Container.make(run, folder, image)
    if caps is None and kind in ("cgroup", "docker"):
        raise Refused(f"--caps {kind}: cannot be used here")
    return caps or NoCaps()


# Processes.


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def marked(run):
    """Processes that carry the mark of this run, this program and what it asks for excepted."""
    mark = f"{RUN_VAR}={run}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)
            except OSError:
                continue  # It has ended, or is somebody else's.


def end_marked(run):
    until = time.monotonic() + END_SECONDS
    while left := list(marked(run)):
        for pid in left:
            kill(pid)
        if time.monotonic() > until:
            say(f"LEFT BEHIND: processes {left}")
            return
        time.sleep(0.02)


class Runner:
    """Runs commands, each in a process group of its own. A signal to this program ends the running one and starts no further one;
    it never interrupts the cleaning up."""

    def __init__(self):
        self.child = None
        self.stopped_by = None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.on_stop)
        signal.signal(signal.SIGALRM, lambda _number, _frame: self.end_group(signal.SIGKILL))

    def on_stop(self, number, _frame):
        self.stopped_by = self.stopped_by or number
        self.end_group(signal.SIGTERM)
        signal.alarm(END_SECONDS)

    def end_group(self, number):
        if self.child is not None:
            try:
                os.killpg(self.child.pid, number)
            except ProcessLookupError:
                pass

    def run(self, command, environment, stdout=None):
        """The status of the command (of a shell: 128 and the signal) and what it wrote to a piped `stdout`."""
        if self.stopped_by:
            return 128 + self.stopped_by, ""
        self.child = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, stdout=stdout, text=True)
        if self.stopped_by:
            self.end_group(signal.SIGTERM)
        output, _ = self.child.communicate()
        status, self.child = self.child.returncode, None
        signal.alarm(0)
        if self.stopped_by:
            return 128 + self.stopped_by, output
        return (status if status >= 0 else 128 - status), output


def run_suite(runner, arguments, targets, run, folder):
    caps = make_caps(arguments.caps, run, folder, arguments.image)
    try:
        say(f"NATS {VERSION}, {caps.describe()}")
        environment = {
            **os.environ,
            "LATENT_REQUIRE_BROKER": "1",
            RUN_VAR: run,
            "TMPDIR": str(folder),
            # One broker at a time under the caps.
            "RUST_TEST_THREADS": "1",
            **caps.environment(),
        }
        if not isinstance(caps, Container):
            # Fetched and checked there; its path is the last line.
            status, output = runner.run([cargo(), "xtask", "broker"], environment, stdout=subprocess.PIPE)
            if status != 0:
                return status
            environment["LATENT_NATS_SERVER"] = output.strip().splitlines()[-1]
        worst = 0
        for package, target in targets:
            command = [cargo(), "test", "--locked", "-p", package, "--test", target, "--all-features", "--no-fail-fast"]
            command += ["--", *arguments.harness] if arguments.harness else []
            say(" ".join(command))
            status, _ = runner.run(command, environment)
            worst = worst or status
        return worst
    finally:
        end_marked(run)
        caps.remove()


def parse(words):
    words, harness = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="What follows `--` goes to the test harness.")
    parser.add_argument("--suite", choices=sorted(SUITES), default="nats_events")
    parser.add_argument("--list", action="store_true", help="name the suites and end")
    parser.add_argument("--caps", choices=("auto", "cgroup", "docker", "none"), default="auto", help="what caps the broker")
    parser.add_argument("--image", default=f"nats@{DIGEST}", help="must be the pinned one; any other is refused")
    arguments = parser.parse_args(words)
    arguments.harness = harness
    return arguments


def main(words):
    arguments = parse(words)
    built = built_targets()
    if arguments.list:
        for name, targets in SUITES.items():
            print(f"{name}: {'built' if targets[-1] in built else 'not built yet'}")
        return 0
    targets = SUITES[arguments.suite]
    if targets[-1] not in built:
        package, target = targets[-1]
        say(f"suite {arguments.suite} is not built yet: {package} has no test target {target}")
        return EXIT_NOT_BUILT
    runner = Runner()
    run = uuid.uuid4().hex
    folder = Path(tempfile.mkdtemp(prefix="latent-nats-"))
    try:
        return run_suite(runner, arguments, [target for target in targets if target in built], run, folder)
    except Refused as refused:
        say(str(refused))
        return EXIT_REFUSED
    except subprocess.CalledProcessError as error:
        say(str(error))
        return error.returncode if error.returncode > 0 else 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if runner.stopped_by:
            say(f"stopped by {signal.Signals(runner.stopped_by).name}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
