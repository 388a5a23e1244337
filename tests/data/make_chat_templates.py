#!/usr/bin/env python3
"""Writes chat_templates/expected.json beside itself: what Jinja2 makes of templates, set up as Transformers does.

    python3 -m venv venv && venv/bin/pip install jinja2 && venv/bin/python tests/data/make_chat_templates.py

"chats" has conversations with the templates NAME.jinja of that folder, and the byte ranges of their generation blocks; "snippets" has one
expression or statement per row. The text of a refused template is null.
"""
import datetime
import json
import pathlib

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

FOLDER = pathlib.Path(__file__).resolve().parent / "chat_templates"
NOW = 1721984461  # 2024-07-26 09:01:01
BEGIN, END = "\ue000", "\ue001"  # around generation blocks

CONVERSATIONS = [
    [],
    [["user", "Hi"]],
    [["system", " Be kind.\n"], ["user", "Hi "]],
    [["user", "What is 1 + 1?"], ["assistant", "2"], ["user", "Are you sure?\n"]],
    [["system", "You are /no_think a bot"], ["user", "a"], ["assistant", "<think>\nx\n</think>\n\nb "], ["user", "c"], ["assistant", "d"]],
    [["user", "{{ messages }} {% if %}"], ["assistant", "naïve 日本 😀 'q' \"z\" \\n"], ["user", "stop"], ["assistant", "after"]],
    [["user", "a"], ["tool", "b\n\"c\""], ["tool", ""], ["assistant", ""]],
    [["assistant", "a"], ["assistant", "b"]],
    [["user", "<tool_response>x</tool_response>"], ["assistant", "\n\ny\n"]],
    [["developer", "x"], ["user", ""]],
]

SNIPPETS = [
    # white space
    "a\r\nb\n", "a\n\n", "  {% if true %}x{% endif %}  \ny", "  {%- if true -%}  x  {%- endif -%}  y", " \n {{- 1 -}} \n z", "{# c #}\nx",
    "x {#- c -#} y", "\t{% set a = 1 %}\n{{ a }}", "a {%+ if true %}b{% endif +%}\nc", "{{ '%}' }}{{ \"}}\" }}", "{ { {x} %} #}",
    # literals
    r"{{ 'a\nb\t\'\"\\\x41\u00e9\q' }}", "{{ 'a' 'b' }}", "{{ 1 }} {{ 1.5 }}", "{{ [1, 'a', none, true, 1.0] }}",
    "{{ (1,) }} {{ () }} {{ 1, 2 }}", "{{ {'a': 1, 'b': [2]} }}", "{{ true }} {{ none }} {{ False }} {{ x }}", "{{ 'it''s' }}",
    "{{ ['a\\'b', 'a\"b', '\\n\\u2028\\x00é'] }}", "{{ 100000000000000000000.0 }} {{ 0.00001 }} {{ 2.0 }}", "{{ {} }}{{ [] }}",
    # operators
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 4 / 2 }}", "{{ 1 + 2 * 3 - 4 }}", "{{ -2 * 3 }} {{ +1 }}",
    "{{ 'a' + 'b' }} {{ 'a' ~ 1 ~ none ~ true }} {{ 'ab' * 3 }} {{ 2 * 'a' }}", "{{ [1] + [2] }} {{ (1,) + (2,) }}", "{{ 'a' + 1 }}",
    "{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }}", "{{ [1, 2] == [1, 2] }}",
    "{{ 'a' in 'cat' }} {{ 1 in [1] }} {{ 'k' in {'k': 1} }} {{ 'a' not in 'b' }} {{ 1 in 'a' }}", "{{ not true or true and false }}",
    "{{ not not 1 }} {{ 0 or 'x' }} {{ '' and 1 }} {{ none or [] }}", "{{ 'y' if true else 'n' }} {{ 'y' if false }}", "{{ 1 / 0 }}",
    "{{ x.y }}", "{{ x.y.z }}", "{{ x is defined }} {{ m is defined }} {{ m.q is defined }}", "{{ x + 'a' }}", "{{ x ~ 'a' }}", "{{ x == y }}",
    "{{ 9223372036854775807 }}", "{{ - 5 | string }}", "{{ 1 if x else 2 if y else 3 }}", "{{ 'a' < 1 }}", "{{ [2] < [10] }}",
    # members, items, slices
    "{{ m.role }} {{ m['role'] }} {{ m.get('role') }} {{ m.get('x') }} {{ m.get('x', 1) }}", "{{ m.items() | list }} {{ m.keys() | list }}",
    "{{ l[0] }} {{ l[-1] }} {{ l[9] }} {{ l[1:] }} {{ l[:-1] }} {{ l[::2] }} {{ l[::-1] }} {{ l[5:1:-2] }}", "{{ 'héllo'[1] }} {{ 'abc'[-9] }}",
    "{{ 'héllo'[1:3] }} {{ 'héllo'[::-1] }} {{ 'abc'[5:] }}", "{{ l['a'] }} {{ m[0] }}", "{{ l[none:2] }}", "{{ l[::0] }}", "{{ m.values() | list }}",
    "{{ l.0 }} {{ 'abc'.1 }}", "{{ m.update({'a': 1}) }}", "{{ l.append(1) }}", "{% set l.x = 1 %}",
    # methods
    "{{ ' a '.strip() }}|{{ 'xax'.strip('x') }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}", "{{ '\\u00a0\\x1ca\\u3000'.strip() }}",
    "{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'abc'.split('') }}", "{{ 'a b c'.split(none, 1) }}",
    "{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }}", "{{ 'aaa'.replace('a', 'b', 2) }} {{ 'abc'.replace('', '-') }}",
    "{{ 'aB c'.upper() }} {{ 'aB c'.lower() }} {{ 'aB c'.title() }} {{ 'aB c'.capitalize() }}", "{{ 'ÀÉ'.lower() }}", "{{ 'a'.nothing() }}",
    "{{ 'ab'.missing }}",
    # filters
    "{{ ' a ' | trim }}|{{ 'xax' | trim('x') }}", "{{ 'abc' | length }} {{ l | length }} {{ m | count }} {{ 'é' | length }}", "{{ 5 | length }}",
    "{{ l | first }} {{ l | last }} {{ [] | first }} {{ 'abc' | first }}", "{{ l | join(', ') }} {{ 'abc' | join('-') }}", "{{ '3' | int + 1 }}",
    "{{ 'x' | int }} {{ 'x' | int(7) }} {{ 3.9 | int }} {{ ' 12 ' | int }} {{ true | int }}", "{{ x | default('d') }} {{ '' | default('d', true) }}",
    "{{ '' | d('e') }} {{ none | default('n') }}", "{{ m | tojson }} {{ l | tojson }}", "{{ {'b': [1, {}], 'a': []} | tojson(indent=2) }}",
    "{{ {'b': 1, 'a': 2} | tojson(separators=(',', ':')) }}", "{{ '<é\\u2028\"\\n' | tojson }}", "{{ [1.5, none, true] | tojson }}",
    "{{ messages | map(attribute='role') | join(' ') }}", "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "{{ messages | rejectattr('role', 'in', ['user']) | map(attribute='content') | list }}", "{{ [0, 1, 2] | select | list }}",
    "{{ [1, 2, 3] | reject('odd') | list }} {{ [1, 2, 3] | select('gt', 1) | list }}", "{{ ['a', 'b'] | map('upper') | list }}",
    "{{ {'b': 1, 'A': 2} | dictsort }}", "{{ m | items | list }}", "{{ 'abc' | list }} {{ m | list }}", "{{ 'a-b' | replace('-', '+') }}",
    "{{ 5 | string + '1' }} {{ 'a' | safe }} {{ 'ab' | upper | lower | title }}", "{{ 'a' | nothing }}", "{{ l | map('nothing') | list }}",
    # tests
    "{{ 'a' is string }} {{ 1 is number }} {{ true is number }} {{ 1 is integer }} {{ true is integer }} {{ 1.0 is float }}",
    "{{ m is mapping }} {{ l is sequence }} {{ 'a' is sequence }} {{ 'a' is iterable }} {{ 1 is iterable }} {{ m is sequence }}",
    "{{ none is none }} {{ x is none }} {{ x is undefined }} {{ true is true }} {{ 1 is true }} {{ false is false }} {{ false is boolean }}",
    "{{ 3 is odd }} {{ 4 is even }} {{ 4 is divisibleby 2 }} {{ 4 is divisibleby(3) }}", "{{ 1 is eq 1 }} {{ 1 is ne(2) }} {{ 1 is in [1] }}",
    "{{ 2 is gt 1 }} {{ 2 is le 1 }} {{ 2 is not lt 1 }} {{ 1 is ge 1 and 1 is not string }}", "{{ 1 is nothing }}",
    # statements
    "{% for a in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for a in l %}{{ loop.previtem }}<{{ a }}>{{ loop.nextitem }}{% endfor %}", "{% for k, v in m.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for a in l if a != 2 %}{{ loop.index }}{{ a }}{% else %}none{% endfor %}", "{% for a in [] %}{% else %}none{% endfor %}",
    "{% for a in l %}{% if a == 2 %}{% continue %}{% endif %}{{ a }}{% if a == 3 %}{% break %}{% endif %}{% endfor %}", "{{ loop }}",
    "{% set a = 1 %}{% for b in l %}{% set a = b %}{% endfor %}{{ a }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = [1] %}",
    "{% set n = namespace(a=1) %}{% for b in l %}{% set n.a = n.a + b %}{% endfor %}{{ n.a }}", "{% set n = namespace({'a': 1}) %}{{ n.a }}{{ n.b }}",
    "{% set t %}a{{ 1 }}b{% endset %}{{ t | upper }}", "{% if x %}a{% elif l %}b{% else %}c{% endif %}", "{% for a in 5 %}{% endfor %}",
    "{% for a in 'héy' %}[{{ a }}]{% endfor %}", "{% for a in m %}{{ a }};{% endfor %}", "{% for a, b in l %}{% endfor %}", "{% for a in l %}",
    "{% macro f(a, b='x') %}<{{ a }}{{ b }}>{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(b=3) }}{{ f(1) is string }}", "{{ f(1) }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro f() %}{{ l }}{{ y }}{% endmacro %}{% set y = 2 %}{{ f() }}",
    "{% for a in range(3) %}{{ a }}{% endfor %} {{ range(1, 9, 3) | list }} {{ range(3, 0, -1) | list }}", "{{ dict(a=1) }}", "{{ nothing(1) }}",
    "{% for a in l %}{% for b in l %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}", "{{ raise_exception('no') }}", "{% if %}{% endif %}",
    "{{ strftime_now('%Y-%m-%d %H:%M:%S %A %a %B %b %d %j %y %I %p %%') }}", "{{ raise_exception is defined }}",
    "{% break %}", "{% nothing %}", "{{ 1", "{{ (1 }}", "{{ 'a }}", "{% endif %}", "{% if 1 %}", "{{ a b }}", "{{ 1 1 }}", "{{ }}", "{{ | trim }}",
]


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)

    def _mark(self, caller):
        return BEGIN + caller() + END


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    out = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    out.filters["tojson"] = to_json
    out.globals["raise_exception"] = refuse
    return out


def strftime_now(form):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(form)


def render(source, variables):
    try:
        return environment().from_string(source).render(**variables)
    except Exception:  # of many kinds
        return None


def ranges(text):
    """The text without marks, and the byte ranges that they surround."""
    out, begins, found = b"", [], []
    for c in text:
        if c == BEGIN:
            begins.append(len(out))
        elif c == END:
            found.append([begins.pop(), len(out)])
        else:
            out += c.encode()
    return out.decode(), found


def chats():
    for path in sorted(FOLDER.glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        for i, messages in enumerate(CONVERSATIONS):
            row = {"template": path.name, "messages": messages, "prompt": i % 2 == 1 or messages[-1:] == [["assistant", "d"]]}
            variables = {"messages": [{"role": role, "content": content} for role, content in messages], "tools": None, "documents": None,
                         "add_generation_prompt": row["prompt"], "bos_token": "<s>", "eos_token": "</s>"}
            if i % 3 == 0:
                row["now"] = NOW
                variables["strftime_now"] = strftime_now
            if i % 4 > 1:
                row["enable_thinking"] = variables["enable_thinking"] = i % 4 == 2
            text = render(source, variables)
            row["text"], row["answers"] = (None, []) if text is None else ranges(text)
            yield row


def snippets():
    variables = {"m": {"role": "user", "n": 1}, "l": [1, 2, 3], "messages": [{"role": role, "content": role[0]} for role in ("user", "tool")]}
    for source in SNIPPETS:
        # The values of the variables are part of the template, because the C++ interface takes only messages.
        head = "{%- set m = " + repr(variables["m"]) + " %}{% set l = [1, 2, 3] %}" if "m" in source or "l" in source else ""
        text = render(head + source, {"messages": variables["messages"], "strftime_now": strftime_now})
        yield {"template": head + source, "text": text}


result = {"chats": list(chats()), "snippets": list(snippets())}
lines = [json.dumps(kind) + ": [\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]" for kind, rows in result.items()]
(FOLDER / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
