use indoc::{formatdoc, indoc};

use super::*;
use crate::module::{Lines, Module};
use crate::version::Target;

/// The result of `f` in short: `Point(x, y: [Deep(z)])`.
fn read(text: &str) -> String {
    let module = Module::parse("a.py", text, Lines::Own, Target::oldest());
    assert_eq!(module.syntax_errors(), []);
    let bindings = module.bindings();
    let Some(Binding::Function(function)) = bindings.find("f") else { panic!("no f in {text}") };
    let mut bases = Bases::default();
    bases.visit_body(module.statements());
    structure_of(&bindings, &bases.0, function).map_or_else(String::new, |structure| short(&structure))
}

fn short(structure: &Structure) -> String {
    match structure {
        Structure::Unknown => String::new(),
        Structure::List(inner) => format!("[{}]", short(inner)),
        Structure::Dict(inner) => format!("{{{}}}", short(inner)),
        Structure::Class(class) => {
            let field = |(name, structure): &(String, Structure)| match short(structure) {
                inner if inner.is_empty() => name.clone(),
                inner => format!("{name}: {inner}"),
            };
            format!("{}({})", class.name, class.fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
    }
}

const POINT: &str = indoc! {"
    @dataclass
    class Point:
        x: float
        y: float = 0
"};

#[test]
fn annotations_are_followed_to_their_classes() {
    for (annotation, structure) in [
        ("Point", "Point(x, y)"),
        ("'Point'", "Point(x, y)"),
        ("Point | None", "Point(x, y)"),
        ("None | Point", "Point(x, y)"),
        ("Optional[Point]", "Point(x, y)"),
        ("list[Point]", "[Point(x, y)]"),
        ("typing.List['Point']", "[Point(x, y)]"),
        ("tuple[Point, ...]", "[Point(x, y)]"),
        ("Iterator[Point]", "[Point(x, y)]"),
        ("Generator[Point, None, None]", "[Point(x, y)]"),
        ("dict[str, list[Point]]", "{[Point(x, y)]}"),
        ("Annotated[Point, 'kept']", "Point(x, y)"),
        ("tuple[Point, Point]", ""),
        ("Point | int", ""),
        ("float", ""),
        ("Other", ""),
        ("module.Point", ""),
        ("'not python('", ""),
        ("list[float]", ""),
        ("Callable[[], Point]", ""),
    ] {
        assert_eq!(read(&format!("{POINT}def f() -> {annotation}: pass\n")), structure, "{annotation}");
    }
    assert_eq!(read(&format!("{POINT}def f(): pass\n")), "");
}

#[test]
fn classes_of_every_sort_have_their_fields() {
    for (class, structure) in [
        (
            indoc! {"
                @dataclasses.dataclass(frozen=True)
                class C:
                    'Text.'
                    a: int
                    b: ClassVar[int] = 1
                    c: InitVar[int] = 2
                    _: KW_ONLY
                    d: 'Point'
                    e = 3
                    def g(self): self.h = 1
            "},
            "C(a, d: Point(x, y))",
        ),
        (
            indoc! {"
                class C(TypedDict, total=False):
                    a: int
                    b: NotRequired[Point]
            "},
            "C(a, b: Point(x, y))",
        ),
        (
            indoc! {"
                class C(NamedTuple):
                    a: int
                    b: int = 1
            "},
            "C(a, b)",
        ),
        (
            indoc! {"
                class C(pydantic.BaseModel):
                    a: int = Field(gt=0)
                    _b: int = 1
                    @field_validator('a')
                    def g(cls, a): return a
            "},
            "C(a)",
        ),
        (
            indoc! {"
                class C(msgspec.Struct, frozen=True):
                    a: list[Point]
            "},
            "C(a: [Point(x, y)])",
        ),
        (
            indoc! {"
                @attrs.define
                class C:
                    _a: int = field(default=1)
            "},
            "C(_a)",
        ),
        (
            indoc! {"
                @attrs.frozen(slots=False)
                class C:
                    a: int
                    b: InitVar[int]
                    c: ClassVar[int] = g()
                    d = -1
                    e = 'x', [2]
            "},
            "C(a, b)",
        ),
        (
            indoc! {"
                @dataclass
                class C:
                    a: int
                    b = g()
            "},
            "C(a)",
        ),
        (
            indoc! {"
                @dataclass
                class B:
                    a: int
                    b: int
                @dataclass
                class C(B, Generic[T]):
                    c: int
                    a: Point
            "},
            "C(a: Point(x, y), b, c)",
        ),
        (
            indoc! {"
                class B(TypedDict):
                    a: int
                class C(B):
                    b: int
            "},
            "C(a, b)",
        ),
        (
            indoc! {"
                @dataclass
                class C:
                    next: 'C | None'
                    other: int
            "},
            "C(next, other)",
        ),
    ] {
        assert_eq!(read(&format!("{POINT}{class}def f() -> C: pass\n")), structure, "{class}");
    }
}

#[test]
fn fields_that_attrs_is_told_of_otherwise_than_by_annotations_are_not_certain() {
    for class in [
        indoc! {"
            @attrs.define
            class C:
                x = attrs.field()
                y = attrs.field(default=1)
        "},
        indoc! {"
            @attrs.define
            class C:
                a: int
                x = attrs.field()
        "},
        indoc! {"
            @attrs.define
            class C:
                a: int
                x = y = helper()
        "},
        indoc! {"
            @attrs.define
            class C:
                a: int
                x, y = field(), field()
        "},
        indoc! {"
            @attrs.define
            class C:
                a: int
                x = FIELD
        "},
        indoc! {"
            @attrs.define
            class B:
                x = attrs.field()
            @attrs.define
            class C(B):
                a: int
        "},
        indoc! {"
            @attrs.define(these={'x': attrs.field()})
            class C:
                a: int
        "},
        indoc! {"
            @attrs.frozen(auto_attribs=False)
            class C:
                a: int
        "},
        indoc! {"
            @attrs.define(field_transformer=more)
            class C:
                a: int
        "},
        indoc! {"
            @attr.dataclass(these={'x': attrs.field()})
            class C:
                a: int
        "},
        indoc! {"
            @attrs.define(**options)
            class C:
                a: int
        "},
    ] {
        assert_eq!(read(&format!("{class}def f() -> C: pass\n")), "", "{class}");
    }
}

#[test]
fn models_that_say_how_they_are_sent_are_not_certain() {
    for class in [
        indoc! {"
            class C(BaseModel):
                model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel, serialize_by_alias=True)
                a: int
        "},
        indoc! {"
            class C(BaseModel):
                a: int
                def model_dump(self, **options): return {'b': self.a}
        "},
        indoc! {"
            class C(BaseModel):
                a: int
                model_dump: ClassVar[Any] = dump
        "},
        indoc! {"
            class B(BaseModel):
                def model_dump(self, **options): return {}
            class C(B):
                a: int
        "},
    ] {
        assert_eq!(read(&format!("{class}def f() -> C: pass\n")), "", "{class}");
    }
    assert_eq!(
        read(indoc! {"
            @define
            class C:
                a: int
                def model_dump(self): pass
            def f() -> C: pass
        "}),
        "C(a)"
    );
}

#[test]
fn what_is_not_certain_is_anything() {
    for class in [
        indoc! {"
            class C:
                a: int
        "},
        indoc! {"
            @dataclass
            @register
            class C:
                a: int
        "},
        indoc! {"
            @dataclass
            class C(Elsewhere):
                a: int
        "},
        indoc! {"
            @dataclass
            class C:
                a: int
                if x:
                    b: int
        "},
        indoc! {"
            @dataclass
            class C:
                a: int
            @dataclass
            class D(C):
                b: int
        "},
        indoc! {"
            @dataclass
            class C:
                a: int
            C = other(C)
        "},
        indoc! {"
            if x:
                @dataclass
                class C:
                    a: int
        "},
        indoc! {"
            @dataclass
            class C:
                a: int
            @dataclass
            class C:
                b: int
        "},
        indoc! {"
            class C(BaseModel):
                model_config = {}
                a: int
        "},
        indoc! {"
            class C(BaseModel, extra='allow'):
                a: int
        "},
        indoc! {"
            class C(BaseModel):
                a: int = Field(alias='b')
        "},
        indoc! {"
            class C(BaseModel):
                a: int
                class Config: pass
        "},
        indoc! {"
            class C(BaseModel):
                a: int
                @computed_field
                def b(self): return 1
        "},
        indoc! {"
            class C(Struct, rename='camel'):
                a: int
        "},
        indoc! {"
            class C(Struct, tag=True):
                a: int
        "},
        indoc! {"
            class C(Struct):
                a: int = field(name='b')
        "},
        indoc! {"
            class C(TypedDict, **options):
                a: int
        "},
        indoc! {"
            class C(C):
                a: int
        "},
        "C = NamedTuple('C', [('a', int)])\n",
    ] {
        assert_eq!(read(&format!("{class}def f() -> C: pass\n")), "", "{class}");
    }
}

#[test]
fn what_a_decorator_may_change_is_not_certain() {
    assert_eq!(
        read(&formatdoc! {"
            {POINT}@wrapped
            def f() -> Point: pass
        "}),
        ""
    );
    assert_eq!(
        read(&formatdoc! {"
            {POINT}@sky.stdout(only='head')
            @sky.compute
            def f() -> Point: pass
        "}),
        "Point(x, y)"
    );
}
