use super::*;
use crate::python::module::Lines;
use crate::python::version::Target;

/// The result of `f` in short: `Point(x, y: [Deep(z)])`.
fn read(text: &str) -> String {
    let module = Module::parse("a.py", text, Lines::Own, Target::oldest());
    assert_eq!(module.syntax_errors(), [""; 0]);
    let Some(Binding::Function(function)) = module.find("f") else { panic!("no f in {text}") };
    let mut bases = Bases(Vec::new());
    bases.visit_body(module.statements());
    shape_of(&module, bases.0, function).map_or_else(String::new, |shape| short(&shape))
}

fn short(shape: &Shape) -> String {
    match shape {
        Shape::Unknown => String::new(),
        Shape::List(inner) => format!("[{}]", short(inner)),
        Shape::Dict(inner) => format!("{{{}}}", short(inner)),
        Shape::Class(class) => {
            let field = |(name, shape): &(String, Shape)| match short(shape) {
                inner if inner.is_empty() => name.clone(),
                inner => format!("{name}: {inner}"),
            };
            format!("{}({})", class.name, class.fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
    }
}

const POINT: &str = "@dataclass\nclass Point:\n    x: float\n    y: float = 0\n";

#[test]
fn annotations_are_followed_to_their_classes() {
    for (annotation, shape) in [
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
        assert_eq!(read(&format!("{POINT}def f() -> {annotation}: pass\n")), shape, "{annotation}");
    }
    assert_eq!(read(&format!("{POINT}def f(): pass\n")), "");
}

#[test]
fn classes_of_every_sort_have_their_fields() {
    for (class, shape) in [
        (
            "@dataclasses.dataclass(frozen=True)\nclass C:\n    'Text.'\n    a: int\n    b: ClassVar[int] = 1\n    c: InitVar[int] = 2\n    _: KW_ONLY\n    d: 'Point'\n    e = 3\n    def g(self): self.h = 1\n",
            "C(a, d: Point(x, y))",
        ),
        ("class C(TypedDict, total=False):\n    a: int\n    b: NotRequired[Point]\n", "C(a, b: Point(x, y))"),
        ("class C(NamedTuple):\n    a: int\n    b: int = 1\n", "C(a, b)"),
        (
            "class C(pydantic.BaseModel):\n    a: int = Field(gt=0)\n    _b: int = 1\n    @field_validator('a')\n    def g(cls, a): return a\n",
            "C(a)",
        ),
        ("class C(msgspec.Struct, frozen=True):\n    a: list[Point]\n", "C(a: [Point(x, y)])"),
        ("@attrs.define\nclass C:\n    _a: int = field(default=1)\n", "C(_a)"),
        (
            "@attrs.frozen(slots=False)\nclass C:\n    a: int\n    b: InitVar[int]\n    c: ClassVar[int] = g()\n    d = -1\n    e = 'x', [2]\n",
            "C(a, b)",
        ),
        ("@dataclass\nclass C:\n    a: int\n    b = g()\n", "C(a)"),
        (
            "@dataclass\nclass B:\n    a: int\n    b: int\n@dataclass\nclass C(B, Generic[T]):\n    c: int\n    a: Point\n",
            "C(a: Point(x, y), b, c)",
        ),
        ("class B(TypedDict):\n    a: int\nclass C(B):\n    b: int\n", "C(a, b)"),
        ("@dataclass\nclass C:\n    next: 'C | None'\n    other: int\n", "C(next, other)"),
    ] {
        assert_eq!(read(&format!("{POINT}{class}def f() -> C: pass\n")), shape, "{class}");
    }
}

#[test]
fn fields_that_attrs_is_told_of_otherwise_than_by_annotations_are_not_certain() {
    for class in [
        "@attrs.define\nclass C:\n    x = attrs.field()\n    y = attrs.field(default=1)\n",
        "@attrs.define\nclass C:\n    a: int\n    x = attrs.field()\n",
        "@attrs.define\nclass C:\n    a: int\n    x = y = helper()\n",
        "@attrs.define\nclass C:\n    a: int\n    x, y = field(), field()\n",
        "@attrs.define\nclass C:\n    a: int\n    x = FIELD\n",
        "@attrs.define\nclass B:\n    x = attrs.field()\n@attrs.define\nclass C(B):\n    a: int\n",
        "@attrs.define(these={'x': attrs.field()})\nclass C:\n    a: int\n",
        "@attrs.frozen(auto_attribs=False)\nclass C:\n    a: int\n",
        "@attrs.define(field_transformer=more)\nclass C:\n    a: int\n",
        "@attr.dataclass(these={'x': attrs.field()})\nclass C:\n    a: int\n",
        "@attrs.define(**options)\nclass C:\n    a: int\n",
    ] {
        assert_eq!(read(&format!("{class}def f() -> C: pass\n")), "", "{class}");
    }
}

#[test]
fn models_that_say_how_they_are_sent_are_not_certain() {
    for class in [
        "class C(BaseModel):\n    model_config: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel, serialize_by_alias=True)\n    a: int\n",
        "class C(BaseModel):\n    a: int\n    def model_dump(self, **options): return {'b': self.a}\n",
        "class C(BaseModel):\n    a: int\n    model_dump: ClassVar[Any] = dump\n",
        "class B(BaseModel):\n    def model_dump(self, **options): return {}\nclass C(B):\n    a: int\n",
    ] {
        assert_eq!(read(&format!("{class}def f() -> C: pass\n")), "", "{class}");
    }
    assert_eq!(read("@define\nclass C:\n    a: int\n    def model_dump(self): pass\ndef f() -> C: pass\n"), "C(a)");
}

#[test]
fn what_is_not_certain_is_anything() {
    for class in [
        "class C:\n    a: int\n",
        "@dataclass\n@register\nclass C:\n    a: int\n",
        "@dataclass\nclass C(Elsewhere):\n    a: int\n",
        "@dataclass\nclass C:\n    a: int\n    if x:\n        b: int\n",
        "@dataclass\nclass C:\n    a: int\n@dataclass\nclass D(C):\n    b: int\n",
        "@dataclass\nclass C:\n    a: int\nC = other(C)\n",
        "if x:\n    @dataclass\n    class C:\n        a: int\n",
        "@dataclass\nclass C:\n    a: int\n@dataclass\nclass C:\n    b: int\n",
        "class C(BaseModel):\n    model_config = {}\n    a: int\n",
        "class C(BaseModel, extra='allow'):\n    a: int\n",
        "class C(BaseModel):\n    a: int = Field(alias='b')\n",
        "class C(BaseModel):\n    a: int\n    class Config: pass\n",
        "class C(BaseModel):\n    a: int\n    @computed_field\n    def b(self): return 1\n",
        "class C(Struct, rename='camel'):\n    a: int\n",
        "class C(Struct, tag=True):\n    a: int\n",
        "class C(Struct):\n    a: int = field(name='b')\n",
        "class C(TypedDict, **options):\n    a: int\n",
        "class C(C):\n    a: int\n",
        "C = NamedTuple('C', [('a', int)])\n",
    ] {
        assert_eq!(read(&format!("{class}def f() -> C: pass\n")), "", "{class}");
    }
    assert_eq!(read(&format!("{POINT}@wrapped\ndef f() -> Point: pass\n")), "");
    assert_eq!(
        read(&format!("{POINT}@sky.stdout(only='head')\n@sky.compute\ndef f() -> Point: pass\n")),
        "Point(x, y)"
    );
}
