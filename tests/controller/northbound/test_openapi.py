"""The OpenAPI document and what answers agree, by requests made from the document: hypothesis draws values that fit its
schemas and values that do not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rostrum.controller.northbound.rest import words

from tests.controller.fakes import Running, running

STREAMS = ("/v1/events", "/v1/overview/events")  # never end; their own tests read them
TEXT = st.text(max_size=12)
ODD = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT, st.lists(TEXT, max_size=2))
SERVERS = st.sampled_from(["h1", "h2", "h3", "h5", "h8", "h99"])


def values(schema: dict[str, Any], components: dict[str, Any]) -> st.SearchStrategy[Any]:
    """What fits a schema of our document."""
    if "$ref" in schema:
        return values(components[schema["$ref"].rsplit("/", 1)[1]], components)
    if "anyOf" in schema:
        return st.one_of(*[values(one, components) for one in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema["type"]
    if kind == "object":
        fields = {name: values(one, components) for name, one in schema["properties"].items()}
        needed = {name: fields.pop(name) for name in schema.get("required", ())}
        return st.fixed_dictionaries(needed, optional=fields)
    if kind == "array":
        return st.lists(values(schema["items"], components), min_size=schema.get("minItems", 0), max_size=3)
    if kind == "string":
        return st.one_of(SERVERS, st.text(min_size=schema.get("minLength", 0), max_size=8))
    if kind == "integer":
        return st.integers(schema.get("minimum", -(2**70)), schema.get("maximum", 2**70))
    return {"boolean": st.booleans(), "null": st.none()}[kind]


class Harness:
    """A manager with its loop, for hypothesis's synchronous examples."""

    def __init__(self, run: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self._manager = running(run)
        self.manager: Running = self.loop.run_until_complete(self._manager.__aenter__())
        self.http = httpx.AsyncClient(base_url=self.manager.url, trust_env=False, timeout=60)
        self.document = self.loop.run_until_complete(self.http.get("/openapi.json")).json()
        self.paths = ["p-none"]

    def close(self) -> None:
        self.loop.run_until_complete(self.http.aclose())
        self.loop.run_until_complete(self._manager.__aexit__(None, None, None))
        self.loop.close()

    def operations(self) -> list[tuple[str, str, dict[str, Any]]]:
        found = self.document["paths"].items()
        return [(path, method, one) for path, each in found for method, one in each.items() if path not in STREAMS]

    def check(self, method: str, template: str, operation: dict[str, Any], **request: Any) -> httpx.Response:
        """Sends it; the answer must be one that the document has for the operation."""
        if "json" in request:  # by hand: so that what JSON has no text for (Infinity) is sent too
            request["content"] = json.dumps(request.pop("json"))
            request["headers"] = {**request.get("headers", {}), "Content-Type": "application/json"}
        answer = self.loop.run_until_complete(self.http.request(method, **request))
        text = f"{method} {template} {request}: {answer.status_code} {answer.text[:300]}"
        assert str(answer.status_code) in operation["responses"], text
        media = answer.headers["content-type"].split(";")[0]
        content = operation["responses"][str(answer.status_code)]["content"]
        assert media in content, text
        if media != "text/plain":
            schema = {**content[media]["schema"], "components": self.document["components"]}
            jsonschema.validate(answer.json(), schema)
        return answer


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    made = Harness(tmp_path_factory.mktemp("run"))
    yield made
    made.close()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(data=st.data())
def test_openapi__every_answer_is_in_the_document(harness: Harness, data: st.DataObject) -> None:
    components = harness.document["components"]["schemas"]
    template, method, operation = data.draw(st.sampled_from(harness.operations()))
    path, query, headers = template, {}, {}
    for parameter in operation.get("parameters", ()):
        fits = values(parameter["schema"], components)
        if parameter["in"] == "path":
            # What is drawn must not depend on what happened before, or hypothesis cannot repeat it.
            name = data.draw(st.sampled_from(["one of ours"] * 4 + ["tor1", "core", "x y"]))
            if name == "one of ours":
                name = harness.paths[-1 - data.draw(st.integers(0, 4)) % len(harness.paths)]
            path = path.replace("{" + parameter["name"] + "}", name)
        elif parameter["in"] == "header":
            headers[parameter["name"]] = data.draw(st.sampled_from(["a", "b", "c", "a b"]))
        elif data.draw(st.booleans()):
            value = data.draw(st.one_of(fits, ODD))
            query[parameter["name"]] = 20 if parameter["name"] == "timeout_ms" else value
    if "wait" in query:
        query["timeout_ms"] = 20
    request: dict[str, Any] = {"url": path, "params": query, "headers": headers}
    fitting = True
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        request["json"] = data.draw(values(schema, components))
        if data.draw(st.booleans()):
            fitting = False
            field = data.draw(st.sampled_from([*request["json"], "colour"]))
            request["json"] = data.draw(st.one_of(ODD, ODD.map(lambda odd: {**request["json"], field: odd})))
    answer = harness.check(method.upper(), template, operation, **request)
    if method == "post" and answer.status_code == 201:
        if template == "/v1/paths":
            harness.paths.append(answer.json()["id"])
        whole = {
            **operation["requestBody"]["content"]["application/json"]["schema"],
            "components": {"schemas": components},
        }
        if not fitting:
            jsonschema.validate(request["json"], whole)  # what is taken fits the document


def test_openapi__every_operation_says_what_it_does(harness: Harness) -> None:
    for template, method, operation in harness.operations():
        assert operation.get("description"), f"{method} {template}"
        assert "401" in operation["responses"] and (method == "get") == ("403" not in operation["responses"])
        for status, answer in operation["responses"].items():
            problem = "application/problem+json" in answer["content"]
            assert problem == (int(status) >= 400), f"{method} {template} {status}"


def test_openapi__every_field_and_parameter_says_what_it_is(harness: Harness) -> None:
    document = harness.document
    silent = [
        f"{model}.{name}"
        for model, schema in document["components"]["schemas"].items()
        for name, field in schema.get("properties", {}).items()
        if not field.get("description")
    ]
    silent += [
        f"{template} {one['name']}"
        for template, _, operation in harness.operations()
        for one in operation.get("parameters", ())
        if not one.get("description")
    ]
    assert not silent, "say it in rest/words.py, or where it is declared"


def test_words__each_is_used(harness: Harness) -> None:
    document = harness.document
    places = {
        f"{model}.{name}": field
        for model, schema in document["components"]["schemas"].items()
        for name, field in schema.get("properties", {}).items()
    }
    places |= {
        f"{template}.{one['name']}": one
        for template, _, operation in harness.operations()
        for one in operation.get("parameters", ())
    }
    said = {(place.rpartition(".")[2], field["description"]) for place, field in places.items()}
    assert [word for word in words.FIELDS.items() if word not in said] == []
    assert [place for place, text in words.EXCEPTIONS.items() if places[place]["description"] != text] == []


def test_openapi__names_of_operations_and_where_they_are(harness: Harness) -> None:
    document = harness.document
    names = [one["operationId"] for methods in document["paths"].values() for one in methods.values()]
    assert len(set(names)) == len(names) and all("v1" not in name for name in names)
    assert document["servers"][0]["url"] == "/"
