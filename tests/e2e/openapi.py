# SPDX-License-Identifier: Apache-2.0
"""docs/openapi.yaml: every reply of the page's API that a test receives is checked against it (ui.py)."""
from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import yaml

PREFIX = "/api/v1"


class UniqueKeys(yaml.SafeLoader):
    """A key that occurs twice is an error: YAML's own loader keeps the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key occurs twice in {keys}, {node.start_mark}"
        return super().construct_mapping(node, deep)


@functools.cache
def description() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load((Path(__file__).parents[2] / "docs/openapi.yaml").read_text(), UniqueKeys)
    return found


def resolve(value: dict[str, Any]) -> dict[str, Any]:
    """The object that a reference names."""
    while "$ref" in value:
        found: Any = description()
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        value = found
    return value


@functools.cache
def patterns() -> list[tuple[re.Pattern[str], str]]:
    """The paths; those without parameters first, as the server prefers them."""
    paths = sorted(description()["paths"], key=lambda path: path.count("{"))
    return [(re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), path) for path in paths]


def operation(method: str, address: str) -> dict[str, Any] | None:
    """The description of a request for /api/v1/…; None: there is none."""
    path = address.partition("?")[0].partition(PREFIX)[2]
    for pattern, template in patterns():
        if pattern.fullmatch(path) and method.lower() in description()["paths"][template]:
            found: dict[str, Any] = description()["paths"][template][method.lower()]
            return found
    return None


@functools.cache
def validator(schema: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({**json.loads(schema), "components": description()["components"]})


def check(content: dict[str, Any], body: bytes) -> None:
    schema = content.get("application/json", {}).get("schema")
    assert schema, f"docs/openapi.yaml does not describe this JSON: {body[:200]!r}"
    validator(json.dumps(schema)).validate(json.loads(body))


def check_exchange(method: str, address: str, sent: str | bytes | None, status: int, kind: str, received: bytes) -> None:
    """A request and its reply; replies that are not JSON have their own tests."""
    found = operation(method, address)
    failure: dict[str, Any] = {"$ref": "#/components/responses/Failure"}
    responses = found["responses"] if found else {}
    assert not found or status >= 400 or str(status) in responses, f"docs/openapi.yaml has no {status} for {method} {address}"
    if kind.startswith("application/json"):
        check(resolve(responses.get(str(status), failure if status >= 400 else {})).get("content", {}), received)
    if found and sent and status < 400 and "application/json" in resolve(found.get("requestBody", {})).get("content", {}):
        check(resolve(found["requestBody"])["content"], sent if isinstance(sent, bytes) else sent.encode())
