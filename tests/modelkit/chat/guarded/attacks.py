"""Templates that try to reach Python, run for ever or fill memory. Each must end as a TemplateError."""

REACHING_OUT = {
    "subclasses": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "subclasses by attr": "{{ ''|attr('__class__') }}{{ (''|attr('__class__')).x }}",
    "subclasses by item": "{{ ''['__class__']['__mro__'] }}",
    "globals of cycler": "{{ cycler.__init__.__globals__.os.popen('touch X').read() }}",
    "globals of joiner": "{{ joiner.__init__.__globals__ }}",
    "globals of namespace": "{{ namespace.__init__.__globals__['os'] }}",
    "lipsum": "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "format reaches attributes": "{{ '{0.__class__.__mro__}'.format('') }}",
    "format_map reaches attributes": "{{ '{x.__class__.__mro__}'.format_map({'x': ''}) }}",
    "format by attr filter": "{{ (('{0.__class__.__mro__}')|attr('format'))('') }}",
    "format by map": "{{ ['{0.__class__}']|map(attribute='format')|map('attr', '__call__')|list }}{{ 1/0 }}",
    "macro globals": "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
    "loop internals": "{% for i in [1] %}{{ loop._iterable.gi_frame }}{% endfor %}",
    "self": "{{ self._TemplateReference__context.environment }}",
    "mutates messages": "{{ messages.append(1) }}",
    "mutates a dict": "{{ messages[0].update({'role': 'x'}) }}",
    "clears a dict": "{{ messages[0].clear() }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}",
    "from import": "{% from 'os' import popen %}",
    "extends": "{% extends 'x' %}",
    "block": "{% block a %}{{ self.a() }}{% endblock %}",
    "namespace underscore": "{% set ns = namespace(_x=1) %}",
    "bytes": "{{ 'a'.encode() }}{{ (1).to_bytes(10**9, 'big') }}",
    "big bytes": "{{ (1).to_bytes(1000000000, 'big')|length }}",
    "translate": "{{ 'aaaa'.translate({97: 'b'*100}) }}",
}

RUNNING_ON = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "deep nested loops": "{% for a in range(999) %}" * 6 + "x" + "{% endfor %}" * 6,
    "filtered loops": "{% for a in range(99999) %}{% for b in range(9999) if 0 %}{% endfor %}{% endfor %}",
    "recursive macro": "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
    "two branches": "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(50) }}",
    "recursive loop": "{% for a in [[[[[1]]]]] recursive %}{{ loop([a, a]) }}{% endfor %}",
    "huge range": "{% for a in range(10**9) %}{% endfor %}",
    "list of range": "{% for a in range(99999) %}{{ range(99999)|list|length }}{% endfor %}",
    "map in map": "{% for a in range(99999) %}{{ range(99999)|map('string')|join|length }}{% endfor %}",
    "sort": "{% for a in range(99999) %}{{ range(99999)|sort|sort(reverse=true)|length }}{% endfor %}",
    "select nothing": "{% for a in range(99999) %}{{ range(99999)|select('gt', 1000000)|list }}{% endfor %}",
    "sum of lists": "{{ range(99999)|batch(1)|sum(start=[])|length }}",
    "power": "{{ 10**(10**7) }}",
    "power tower": "{{ 99**99**99**99 }}",
    "float power": "{{ (2**4096)**4096 }}",
    "hex literals": "{{ 0x" + "f" * 900_000 + " // 3 }}",
    "products": "{% set ns = namespace(x=3) %}{% for i in range(99) %}{% set ns.x = ns.x*ns.x %}{% endfor %}",
    "round": "{{ 1|round(10**8, 'ceil') }}",
    "round down": "{{ 5|round(-1000000000) }}",
    "tree compare": "{% set a = namespace(x=[1], y=[1]) %}{% for i in range(60) %}"
    "{% set a.x = [a.x, a.x] %}{% set a.y = [a.y, a.y] %}{% endfor %}{{ a.x == a.y }}",
    "tree in": "{% set a = namespace(x=[1], y=[1]) %}{% for i in range(60) %}"
    "{% set a.x = [a.x, a.x] %}{% set a.y = [a.y, a.y] %}{% endfor %}{{ a.x in [a.y] }}",
    "tree key": "{% set a = namespace(x=(1,)) %}{% for i in range(60) %}"
    "{% set a.x = (a.x, a.x) %}{% endfor %}{{ {a.x: 1}|length }}",
    "tree unique": "{% set a = namespace(x=(1,)) %}{% for i in range(60) %}"
    "{% set a.x = (a.x, a.x) %}{% endfor %}{{ [a.x]|unique|list|length }}",
    "comparisons in text": "{% set big = 'ab' * 2000000 %}" + "{{ big[:3999990] in big ~ 'c' }}" * 3000,
    "colliding keys": "{{ dict(range(0, 99999 * 2305843009213693951, 2305843009213693951)|batch(2)) }}",
    "backwards": "{{ ('a' * 8000000).rfind('a' * 900 ~ 'b' ~ 'a' * 900) }}",
    "split backwards": "{{ ('a' * 8000000).rsplit('a' * 900 ~ 'b' ~ 'a' * 900) }}",
    "strip": "{{ ('a' * 8000000).strip('b' * 1000000 ~ 'a') }}",
    "trim": "{{ ('a' * 8000000)|trim('b' * 1000000 ~ 'a') }}",
    "wordwrap": "{{ ('ab ' * 1000000)|wordwrap(5) }}",
    "deep value": "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}"
    "{% endfor %}{{ ns.x }}",
}

FILLING_MEMORY = {
    "text times": "{{ 'a' * 10**10 }}",
    "times text": "{{ 10**10 * 'a' }}",
    "list times": "{{ [0] * 10**9 }}",
    "text doubling": "{% set ns = namespace(s='a') %}{% for i in range(40) %}{% set ns.s = ns.s + ns.s %}"
    "{% endfor %}{{ ns.s }}",
    "tilde doubling": "{% set ns = namespace(s='a') %}{% for i in range(40) %}{% set ns.s = ns.s ~ ns.s %}"
    "{% endfor %}{{ ns.s }}",
    "list doubling": "{% set ns = namespace(s=[0]) %}{% for i in range(40) %}{% set ns.s = ns.s + ns.s %}"
    "{% endfor %}",
    "set block doubling": "{% set ns = namespace(s='a') %}{% for i in range(40) %}{% set t %}"
    "{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = t %}{% endfor %}",
    "tree printed": "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}"
    "{% endfor %}{{ ns.s }}",
    "tree as json": "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}"
    "{% endfor %}{{ ns.s|tojson }}",
    "tree as string": "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}"
    "{% endfor %}{{ ns.s|string|length }}",
    "tree of arguments": "{% macro m() %}{{ varargs }}{% endmacro %}{% set ns = namespace(s=[1]) %}"
    "{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ m(ns.s) }}",
    "shared texts": "{{ ['a' * 1000000] * 100000 }}",
    "center": "{{ 'a'|center(10**10) }}",
    "center method": "{{ 'a'.center(10**10) }}",
    "ljust": "{{ 'a'.ljust(10**10) }}",
    "zfill": "{{ '1'.zfill(10**10) }}",
    "expandtabs": "{{ ('\\t' * 1000).expandtabs(10**8) }}",
    "indent": "{{ 'a\\nb'|indent(10**10) }}",
    "indent text": "{{ ('a\\n' * 100000)|indent('x' * 100000) }}",
    "json indent": "{{ [1, 2]|tojson(indent=10**10) }}",
    "json indent by place": "{{ [1, 2]|tojson(false, 10**10) }}",
    "json indent of a deep list": "{% set ns = namespace(x=[0] * 300000) %}{% for i in range(90) %}"
    "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson(indent=9999) }}",
    "escape once": "{{ ('<' * 60000000)|e|length }}",
    "words": "{{ ('ab ' * 20000000)|wordcount }}",
    "title": "{{ ('a ' * 20000000)|title|length }}",
    "join characters": "{{ ' '.join('é' * 60000000)|length }}",
    "percent width": "{{ '%0999999999d' % 1 }}",
    "percent star": "{{ '%*d' % (999999999, 1) }}",
    "percent precision": "{{ '%.999999999f' % 1.5 }}",
    "percent repeats": "{{ ('%(a)s' * 100000) % {'a': 'x' * 100000} }}",
    "format filter": "{{ '%0999999999d'|format(1) }}",
    "format width": "{{ '{:>9999999999}'.format(1) }}",
    "format nested width": "{{ '{:>{}}'.format(1, 9999999999) }}",
    "format repeats": "{{ ('{0}' * 100000).format('x' * 100000) }}",
    "format repr": "{{ ('{0!r}' * 100000).format('x' * 100000) }}",
    "replace": "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
    "replace nothing": "{{ ('a' * 100000)|replace('', 'b' * 100000) }}",
    "join": "{{ range(99999)|join('x' * 100000) }}",
    "join method": "{{ ('x' * 100000).join(('a ' * 100000).split()) }}",
    "batch fill": "{{ [1]|batch(10**9, 0)|list }}",
    "slice fill": "{{ [1]|slice(10**9, 0)|list }}",
    "split": "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}"
    "{% set ns.l = ns.l + [('ab ' * 300000).split()] %}{% endfor %}",
    "list of characters": "{{ ('é' * 3000000)|list|length }}",
    "output": "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
    "template data": "{% for i in range(99999) %}" + "x" * 10_000 + "{% endfor %}",
    "macro buffer": "{% macro m() %}{% for i in range(99999) %}{{ s }}" + "y{{ 1 }}" * 1000 + "{% endfor %}"
    "{% endmacro %}{{ m()|length }}",
    "captured repeats": "{% set big = 'x' * 1000000 %}{% set t %}{% for i in range(99999) %}"
    "{{ big }}{% endfor %}{% endset %}",
    "kept lists": "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}"
    "{% set ns.l = ns.l + [[i] * 10000] %}{% endfor %}",
    "escape": "{% for i in range(999) %}{{ ('<' * 1000000)|e|length }}{% endfor %}",
    "date": "{{ strftime_now('%0999999999d') }}",
    "long date": "{{ strftime_now('%A' * 1000000) }}",
    "tuple wrap": "{% set ns = namespace(x=1) %}{% for i in range(9999) %}"
    "{% set ns.x = (ns.x, 'y' * 100000) %}{% endfor %}",
}

LARGE_SOURCES = {
    "too many bytes": "x" * 1_000_001,
    "too many outputs": "{{ a }}" * 140_000,
    "too many tokens": "{{" + "a+" * 400_000 + "a}}",
    "parentheses": "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
    "lists": "{{ " + "[" * 3_000 + "]" * 3_000 + " }}",
    "nested ifs": "{% if 1 %}" * 2_000 + "{% endif %}" * 2_000,
    "nested fors": "{% for a in b %}" * 100 + "{% endfor %}" * 100,
    "long sum": "{{ " + "1+" * 20_000 + "1 }}",
    "not chain": "{{ " + "not " * 50_000 + "1 }}",
    "filters": "{{ 1" + "|string" * 50_000 + " }}",
    "unclosed": "{{ 'a",
    "unknown tag": "{% frobnicate %}",
    "unknown filter": "{{ 'a'|urlize }}",
}
