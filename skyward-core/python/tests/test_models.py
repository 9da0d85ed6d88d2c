"""Pydantic models keep the item names of the tuples in them."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import pydantic
import pytest

from .test_values import there


class Point(NamedTuple):
    x: float
    y: Any


@dataclasses.dataclass
class Held:
    at: Point


class Inner(pydantic.BaseModel):
    at: Point


class Several(pydantic.RootModel[list[Point]]):
    root: list[Point]


HERE = {"x": 1.0, "y": 2}


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (Point, Point(1.0, 2), HERE),
        (list[Point], [Point(1.0, 2)], [HERE]),
        (tuple[Point, int], (Point(1.0, 2), 3), [HERE, 3]),
        (dict[str, Point], {"a": Point(1.0, 2)}, {"a": HERE}),
        (set[Point], {Point(1.0, 2)}, [HERE]),
        (frozenset[Point], frozenset({Point(1.0, 2)}), [HERE]),
        (collections.deque[Point], collections.deque([Point(1.0, 2)]), [HERE]),
        (Held, Held(Point(1.0, 2)), {"at": HERE}),
        (Inner, Inner(at=Point(1.0, 2)), {"at": HERE}),
        (Several, Several([Point(1.0, 2)]), [HERE]),
        (Any, Point(1.0, [Point(1.0, 2), float("inf")]), {"x": 1.0, "y": [HERE, float("inf")]}),
        (Any, Point(1.0, Inner(at=Point(1.0, 2))), {"x": 1.0, "y": {"at": HERE}}),
        (list[tuple[float, int]], [(1.0, 2)], [[1.0, 2]]),
        (list[float], [0.5, 1.5], [0.5, 1.5]),
    ],
    ids=repr,
)
def test_a_namedtuple_in_a_model_carries_its_names(annotation: Any, value: Any, expected: Any) -> None:
    model = pydantic.create_model("Model", field=(annotation, ...))
    assert there([model(field=value)]) == [{"field": expected}]


def test_names_are_kept_in_fields_that_are_not_declared_or_are_renamed() -> None:
    class Model(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="allow", serialize_by_alias=True)

        at: Point = pydantic.Field(serialization_alias="where")

    more: dict[str, Any] = {"more": Point(1.0, 2)}
    assert there(Model(at=Point(1.0, 2), **more)) == {"where": HERE, "more": HERE}


def test_a_serialiser_of_the_model_takes_precedence() -> None:
    class Model(pydantic.BaseModel):
        turned: Point
        kept: Point

        @pydantic.field_serializer("turned")
        def turn(self, point: Point) -> tuple[Any, float]:
            return point.y, point.x

        def model_dump(self, **options: Any) -> dict[str, Any]:
            return {**super().model_dump(**options), "count": 1}

    model = Model(turned=Point(1.0, 2), kept=Point(1.0, 2))
    assert there(model) == {"turned": [2, 1.0], "kept": HERE, "count": 1}
