"""The guard: hostile templates end soon as TemplateErrors; honest ones render as in transformers."""

import itertools
import json
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from modelkit.chat.guarded import GuardedTemplate, budget
from modelkit.errors import TemplateError
from tests.modelkit.chat.guarded import attacks

FROZEN = datetime(2026, 1, 2, 12, 0)
CONTEXT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "s": ""}


def render(source: str, **variables: Any) -> str:
    return GuardedTemplate(source).render(variables)


@pytest.mark.parametrize("source", attacks.REACHING_OUT.values(), ids=attacks.REACHING_OUT.keys())
def test_nothing_beyond_text_can_be_reached(source: str):
    with pytest.raises(TemplateError):
        GuardedTemplate(source).render(CONTEXT)


@pytest.mark.parametrize("source", attacks.RUNNING_ON.values(), ids=attacks.RUNNING_ON.keys())
def test_what_runs_on_is_stopped(source: str):
    with pytest.raises(TemplateError):
        GuardedTemplate(source, seconds=0.3).render(CONTEXT)


@pytest.mark.parametrize("source", attacks.FILLING_MEMORY.values(), ids=attacks.FILLING_MEMORY.keys())
def test_what_fills_memory_is_stopped(source: str):
    with pytest.raises(TemplateError):
        GuardedTemplate(source).render(CONTEXT)


@pytest.mark.parametrize("source", attacks.LARGE_SOURCES.values(), ids=attacks.LARGE_SOURCES.keys())
def test_a_source_beyond_bounds_is_refused(source: str):
    with pytest.raises(TemplateError):
        GuardedTemplate(source)


def test_the_default_deadline_is_two_seconds():
    template = GuardedTemplate(attacks.RUNNING_ON["nested loops"])
    begin = time.thread_time()
    with pytest.raises(TemplateError, match="ran longer than 2 seconds"):
        template.render({})
    assert time.thread_time() - begin < 3


def test_waiting_for_a_processor_does_not_count(monkeypatch: pytest.MonkeyPatch):
    clock = itertools.count(0, 10)  # ten seconds pass between two looks
    frozen = SimpleNamespace(monotonic=lambda: next(clock), thread_time=lambda: 0.0)
    monkeypatch.setattr(budget, "time", frozen)
    assert render("{% for x in range(9) %}{{ x }}{% endfor %}") == "012345678"


def test_all_attacks_together_stay_in_bounded_memory():
    code = (
        "import resource, sys\n"
        "from modelkit.chat.guarded import GuardedTemplate\n"
        "from modelkit.errors import TemplateError\n"
        "from tests.modelkit.chat.guarded import attacks\n"
        "for source in attacks.FILLING_MEMORY.values():\n"
        "    try: GuardedTemplate(source).render({'s': ''})\n"
        "    except TemplateError: continue\n"
        "    sys.exit('rendered: ' + source[:80])\n"
        "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "if sys.platform == 'linux':\n"
        # There ru_maxrss begins at what the process had that started this one.
        "    status = open('/proc/self/status').read()\n"
        "    peak = int(status.split('VmHWM:')[1].split()[0])\n"
        "print(peak if sys.platform == 'darwin' else peak * 1024)\n"
    )
    root = Path(__file__).resolve().parents[4]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 400 * 1024 * 1024


def test_a_template_works_and_is_stopped_outside_the_main_thread():
    found: list[object] = []

    def work() -> None:
        found.append(render("{{ 1 + 1 }}"))
        with pytest.raises(TemplateError) as error:
            render(attacks.RUNNING_ON["recursive macro"])
        found.append(error.value)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[0] == "2"
    assert isinstance(found[1], TemplateError)


def test_a_rendering_does_not_wait_for_another():
    template = GuardedTemplate("{{ meet() }}")
    both = threading.Barrier(2, timeout=30)
    texts: list[str] = []

    def work() -> None:
        texts.append(template.render({"meet": lambda: both.wait() >= 0}))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["True", "True"]


def test_renderings_in_several_threads_do_not_mix():
    template = GuardedTemplate("{% for i in range(2000) %}{{ x }}{% endfor %}")
    found: dict[int, str] = {}
    threads = [
        threading.Thread(target=lambda n=n: found.update({n: template.render({"x": n})})) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: str(n) * 2000 for n in range(8)}


def goldens(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "templates" / "goldens.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_real_templates_render_byte_for_byte_as_transformers_does(shared_data: Path):
    compiled: dict[str, GuardedTemplate] = {}
    for golden in goldens(shared_data):
        name = golden["template"]
        if name not in compiled:
            source = (shared_data / "templates" / name).read_text(encoding="utf-8")
            compiled[name] = GuardedTemplate(source)
        variables = {
            "messages": golden["messages"],
            "tools": golden["tools"],
            "documents": None,
            "add_generation_prompt": golden["add_generation_prompt"],
            **golden["vars"],
        }
        case = f"{name}, {golden['conv']}"
        if golden["ok"]:
            assert compiled[name].render(variables, now=FROZEN) == golden["text"], case
        else:
            with pytest.raises(TemplateError):
                compiled[name].render(variables, now=FROZEN)


def test_the_hostile_template_of_the_data_runs_nothing(shared_data: Path, tmp_path: Path, monkeypatch: Any):
    monkeypatch.chdir(tmp_path)
    config = shared_data / "malformed" / "dirs" / "template_escape" / "tokenizer_config.json"
    source = json.loads(config.read_text())["chat_template"]
    with pytest.raises(TemplateError, match="unsafe"):
        render(source)
    assert list(tmp_path.iterdir()) == []


SAME = {
    "tojson keeps order and escapes nothing": ("{{ x|tojson }}", '{"b": "<é>", "a": 1}'),
    "tojson indents": ("{{ x|tojson(indent=1) }}", '{\n "b": "<é>",\n "a": 1\n}'),
    "blocks are trimmed": ("{% if 1 %}\na\n  {% endif %}\nb", "a\nb"),
    "break": ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
    "continue": ("{% for i in range(3) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "02"),
    "generation": ("a{% generation %}{{ 'b' }}{% endgeneration %}c", "abc"),
    "namespace": (
        "{% set n = namespace(i=0) %}{% for a in x %}{% set n.i = n.i + 1 %}{% endfor %}{{ n.i }}",
        "2",
    ),
    "split in a loop": ("{% for a in ['p q', 'r s'] %}{{ a.split(' ')[-1] }}{% endfor %}", "qs"),
    "replace in a loop": ("{% for a in ['pq', 'rq'] %}{{ a.replace('q', 'x') }}{% endfor %}", "pxrx"),
    "loop variables": ("{% for a in x %}{{ loop.index }}/{{ loop.length }}{{ loop.last }} {% endfor %}",
                       "1/2False 2/2True "),
    "filtered loop": ("{% for a in x if a == 'a' %}{{ a }}{{ loop.length }}{% endfor %}", "a1"),
    "map, select, join": ("{{ ['b', '', 'c']|select|map('upper')|join('-') }}", "B-C"),
    "selectattr": ("{{ [x, {'a': 2}]|selectattr('a', 'equalto', 2)|list|length }}", "1"),
    "sum": ("{{ [1, 2, 3]|sum }}{{ [x]|sum(attribute='a') }}", "61"),
    "slices": ("{{ 'abcdef'[1:-1:2] }}{{ [1, 2, 3][::-1] }}", "bd[3, 2, 1]"),
    "percent": ("{{ '%s is %04.1f' % ('pi', 3.14159) }}", "pi is 03.1"),
    "format": ("{{ '{0:>4}|{a}|{0!r}'.format('b', a=x.a) }}", "   b|1|'b'"),
    "tilde": ("{{ 1 ~ 'a' ~ none ~ x.missing }}", "1aNone"),
    "dictsort": ("{{ x|dictsort }}", "[('a', 1), ('b', '<é>')]"),
    "items": ("{% for k, v in x.items() %}{{ k }}{{ v }}{% endfor %}", "b<é>a1"),
    "chained comparison": ("{{ 1 < x.a + 1 < 3 }}{{ 'b' in x }}{{ x.a not in [2, 3] }}", "TrueTrueTrue"),
    "macro with caller": (
        "{% macro m(a) %}<{{ a }}{{ caller() }}>{% endmacro %}{% call m(1) %}!{% endcall %}",
        "<1!>",
    ),
    "indent": ("{{ 'a\nb'|indent(2) }}{{ 'a\nb'|indent(width=1, first=true) }}", "a\n  b a\n b"),
    "trim and strip": ("{{ ' a '|trim }}{{ 'xax'.strip('x') }}", "aa"),
}  # fmt: skip


@pytest.mark.parametrize(("source", "text"), SAME.values(), ids=SAME.keys())
def test_the_guard_changes_no_honest_result(source: str, text: str):
    assert render(source, x={"b": "<é>", "a": 1}) == text


def test_a_long_conversation_is_no_attack():
    source = "{% for m in messages %}{{ '<|' + m.role + '|>' + m['content'] | trim + '\n' }}{% endfor %}"
    messages = [{"role": "user", "content": "word " * 200}] * 2000
    assert len(GuardedTemplate(source).render({"messages": messages})) > 1_900_000


def test_raise_exception_reaches_the_user_with_its_line():
    with pytest.raises(TemplateError, match=r"line 3: .*roles must alternate"):
        render("a\n{% if 1 %}\n{{ raise_exception('roles must alternate') }}{% endif %}")


def test_a_syntax_error_names_its_line():
    with pytest.raises(TemplateError, match="line 2: jinja cannot read it: Expected an expression"):
        GuardedTemplate("a\n{% for %}\n")


def test_a_failing_expression_names_its_line():
    with pytest.raises(TemplateError, match="line 2: UndefinedError"):
        render("a\n{{ missing.name }}")


def test_the_clock_can_be_replaced():
    assert GuardedTemplate("{{ strftime_now('%d %b %Y') }}").render({}, now=FROZEN) == "02 Jan 2026"


def test_a_template_cannot_change_what_it_is_given():
    given_messages = [{"role": "user", "content": "hi"}]
    with pytest.raises(TemplateError):
        render("{% set _ = messages.append(1) %}", messages=given_messages)
    assert given_messages == [{"role": "user", "content": "hi"}]


LEAVES = st.sampled_from(["1", "'ab'", "x", "m", "y.z", "none", "[1, 'a']", "{'k': x}", "range(50)"])
FILTERS = """
    upper list length tojson join('-') string sort first reverse|list sum center(99) indent(9) replace('a',x)
    batch(2)|list map('string')|list unique|list wordcount title round slice(3)|list last capitalize int
"""
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "**", "%", "~", "==", "<", "in", "and"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        st.tuples(
            inner,
            st.sampled_from(FILTERS.split()),
        )
        .map("|".join)
        .map("({})".format),
        inner.map("[{0}, {0}]".format),
        inner.map("({0}) * 99999".format),
        inner.map("({}).split('a')".format),
    ),
    max_leaves=12,
)
STATEMENTS = st.recursive(
    EXPRESSIONS.map("{{{{ {} }}}}".format),
    lambda inner: st.one_of(
        st.tuples(EXPRESSIONS, inner).map(lambda p: f"{{% for x in {p[0]} %}}{p[1]}{{% endfor %}}"),
        st.tuples(EXPRESSIONS, inner).map(lambda p: f"{{% if {p[0]} %}}{p[1]}{{% endif %}}"),
        st.tuples(EXPRESSIONS, inner).map(lambda p: f"{{% set x = {p[0]} %}}{p[1]}"),
        inner.map("{{% set x %}}{}{{% endset %}}{{{{ x }}}}".format),
        inner.map("{{% macro m(x) %}}{}{{% endmacro %}}{{{{ m('a') }}}}".format),
        st.lists(inner, min_size=2, max_size=3).map("".join),
    ),
    max_leaves=6,
)


class Unguarded(ImmutableSandboxedEnvironment):
    # Without this jinja2 computes constants while compiling, those of branches that never run included.
    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "%", "**"])


def unguarded(source: str, variables: dict[str, Any]) -> str:
    environment = Unguarded(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(source).render(variables)


@settings(max_examples=150)
@given(STATEMENTS)
def test_any_template_ends_in_time_and_unless_stopped_as_without_the_guard(source: str):
    variables = {"x": "ab" * 50, "m": [{"a": [1, 2]}] * 3}
    begin = time.thread_time()
    try:
        text = GuardedTemplate(source, seconds=0.5).render(variables)
    except TemplateError:
        assert time.thread_time() - begin < 3
    else:
        assert text == unguarded(source, variables)
