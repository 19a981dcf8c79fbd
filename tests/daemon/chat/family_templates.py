"""Chat templates in the formats that families of models document, written for the tests."""

from __future__ import annotations

_OPEN = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
_RESULT = "{{ '<|im_start|>user\\n<tool_response>\\n' + m.content + '\\n</tool_response><|im_end|>\\n' }}"

_HERMES_TOOLS = """{%- if tools -%}
{{ '<|im_start|>system\\nYou may call these functions:\\n<tools>\\n' }}
{%- for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{% endfor -%}
{{ '</tools>\\nAnswer with a call in this form:\\n' }}
{{- '<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call><|im_end|>\\n' }}
{%- endif -%}
"""
_HERMES_CALLS = """{%- for c in m.tool_calls -%}
{{ '\\n<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' }}
{{- c.function.arguments | tojson }}{{ '}\\n</tool_call>' }}
{%- endfor -%}
"""
HERMES = (
    _HERMES_TOOLS
    + "{%- for m in messages -%}{%- if m.role == 'tool' -%}"
    + _RESULT
    + "{%- else -%}{{ '<|im_start|>' + m.role + '\\n' + m.content }}{%- if m.tool_calls -%}"
    + _HERMES_CALLS
    + "{%- endif -%}{{ '<|im_end|>\\n' }}{%- endif -%}{%- endfor -%}"
    + _OPEN
)
# Qwen 3: reasoning in the last turn, and a closed tag in the prompt where it is switched off.
THINKING = (
    _HERMES_TOOLS
    + "{%- for m in messages -%}{%- if m.role == 'tool' -%}"
    + _RESULT
    + "{%- else -%}{{ '<|im_start|>' + m.role + '\\n' }}{%- if m.reasoning_content and loop.last -%}"
    + "{{ '<think>\\n' + m.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}{%- endif -%}{{ m.content }}"
    + "{%- if m.tool_calls -%}"
    + _HERMES_CALLS
    + "{%- endif -%}{{ '<|im_end|>\\n' }}{%- endif -%}{%- endfor -%}"
    + "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% if enable_thinking is defined and "
    + "enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}{% endif %}"
)
# DeepSeek R1's distillates: what was thought is dropped, and every answer begins with an open tag.
OPEN_TAG = (
    "{%- for m in messages -%}{%- set content = m.content -%}{%- if m.role == 'assistant' and '</think>' in content -%}"
    "{%- set content = content.split('</think>')[-1] -%}{%- endif -%}"
    "{{ '<|im_start|>' + m.role + '\\n' + content + '<|im_end|>\\n' }}{%- endfor -%}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% endif %}"
)
TAGGED = (
    "{%- if tools -%}{{ '<|im_start|>system\\n<tools>\\n' }}{%- for tool in tools %}{{ tool | tojson }}{{ '\\n' }}"
    "{% endfor -%}{{ '</tools>\\nCall like this:\\n<tool_call>\\n<function=name>\\n<parameter=key>\\nvalue\\n"
    "</parameter>\\n</function>\\n</tool_call><|im_end|>\\n' }}{%- endif -%}"
    "{%- for m in messages -%}{%- if m.role == 'tool' -%}" + _RESULT + "{%- else -%}"
    "{{ '<|im_start|>' + m.role + '\\n' + m.content }}{%- for c in m.tool_calls or [] -%}"
    "{{ '\\n<tool_call>\\n<function=' + c.function.name + '>\\n' }}{%- for k, v in c.function.arguments | items -%}"
    "{{ '<parameter=' + k + '>\\n' }}{{ v if v is string else v | tojson }}{{ '\\n</parameter>\\n' }}{%- endfor -%}"
    "{{ '</function>\\n</tool_call>' }}{%- endfor -%}{{ '<|im_end|>\\n' }}{%- endif -%}{%- endfor -%}" + _OPEN
)
# Qwen 3.5: every answer begins with an open tag, or a closed one.
TAGGED_THINKING = TAGGED.replace(
    "{{ '<|im_start|>' + m.role + '\\n' + m.content }}",
    "{{ '<|im_start|>' + m.role + '\\n' }}{%- if m.reasoning_content and loop.last -%}"
    "{{ '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}{%- endif -%}{{ m.content }}",
).replace(
    _OPEN,
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% if enable_thinking is defined and "
    "enable_thinking is false %}{{ '\\n</think>\\n\\n' }}{% endif %}{% endif %}",
)
LLAMA = (
    "{{ bos_token }}{%- if tools -%}{{ '<|start_header_id|>system<|end_header_id|>\\n\\nEnvironment: ipython\\n' }}"
    '{{- \'Answer with {"name": function name, "parameters": dictionary}.\\n\' }}'
    "{%- for tool in tools %}{{ tool | tojson }}{{ '\\n\\n' }}{% endfor -%}{{ '<|eot_id|>' }}{%- endif -%}"
    "{%- for m in messages -%}{%- if m.role == 'tool' -%}"
    "{{ '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + m.content + '<|eot_id|>' }}{%- elif m.tool_calls -%}"
    "{%- if m.tool_calls | length != 1 -%}{{ raise_exception('one call at a time') }}{%- endif -%}"
    "{%- set f = m.tool_calls[0].function -%}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"
    "{{- '{\"name\": \"' + f.name + '\", ' }}{{- '\"parameters\": ' }}{{- f.arguments | tojson }}{{- '}<|eot_id|>' }}"
    "{%- else -%}"
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}"
    "{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}"
)
MISTRAL_LIST = (
    "{{ bos_token }}{%- for m in messages -%}{%- if m.role == 'user' -%}"
    "{%- if tools and loop.last -%}{{ '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif -%}"
    "{{ '[INST]' + m.content + '[/INST]' }}{%- elif m.role == 'tool' -%}"
    '{{ \'[TOOL_RESULTS]{"content": \' + (m.content | tojson) + \', "call_id": "\' + m.tool_call_id }}'
    "{{- '\"}[/TOOL_RESULTS]' }}"
    "{%- elif m.tool_calls -%}{{ '[TOOL_CALLS][' }}{%- for c in m.tool_calls -%}"
    "{%- if c.id is not defined or c.id | length != 9 -%}{{ raise_exception('an id of nine characters') }}{%- endif -%}"
    '{{ \'{"name": "\' + c.function.name + \'", "arguments": \' + (c.function.arguments | tojson) }}'
    "{{- ', \"id\": \"' + c.id + '\"}' }}{%- if not loop.last -%}{{ ', ' }}{%- endif -%}{%- endfor -%}"
    "{{ ']' + eos_token }}{%- elif m.role == 'assistant' -%}{{ m.content + eos_token }}{%- endif -%}{%- endfor -%}"
)
MISTRAL_IDS = (
    "{{ bos_token }}{%- if tools -%}{{ '[AVAILABLE_TOOLS]' + (tools | tojson) + '[/AVAILABLE_TOOLS]' }}{%- endif -%}"
    "{%- for m in messages -%}{%- if m.role == 'system' -%}{{ '[SYSTEM_PROMPT]' + m.content + '[/SYSTEM_PROMPT]' }}"
    "{%- elif m.role == 'user' -%}{{ '[INST]' + m.content + '[/INST]' }}{%- elif m.role == 'tool' -%}"
    "{{ '[TOOL_RESULTS]' + m.tool_call_id + '[TOOL_CONTENT]' + m.content + '[/TOOL_RESULTS]' }}"
    "{%- else -%}{{ m.content }}{%- for c in m.tool_calls or [] -%}"
    "{%- set arguments = c.function.arguments if c.function.arguments is string else c.function.arguments | tojson -%}"
    "{{ '[TOOL_CALLS]' + c.function.name + '[CALL_ID]' + c.id + '[ARGS]' + arguments }}{%- endfor -%}"
    "{{ eos_token }}{%- endif -%}{%- endfor -%}"
)
_DEEPSEEK = (
    "{{ bos_token }}{%- if tools -%}{{ '## Tools\\n' }}{%- for tool in tools %}{{ tool | tojson }}{{ '\\n' }}"
    "{% endfor -%}{%- endif -%}{%- for m in messages -%}{%- if m.role == 'user' -%}{{ '<｜User｜>' + m.content }}"
    "{%- elif m.role == 'tool' -%}{{ '<｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜>' }}"
    "{%- elif m.role == 'system' -%}{{ m.content }}"
    "{%- elif m.tool_calls -%}{{ '<｜Assistant｜>' + m.content + '<｜tool▁calls▁begin｜>' }}"
    "{%- for c in m.tool_calls -%}CALL{%- endfor -%}{{ '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}"
    "{%- else -%}{{ '<｜Assistant｜>' + m.content + '<｜end▁of▁sentence｜>' }}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<｜Assistant｜>' }}{%- endif -%}"
)
DEEPSEEK = _DEEPSEEK.replace(
    "CALL",
    "{{ '<｜tool▁call▁begin｜>' + c.function.name + '<｜tool▁sep｜>' + (c.function.arguments | tojson) + "
    "'<｜tool▁call▁end｜>' }}",
)
DEEPSEEK_FENCED = _DEEPSEEK.replace(
    "CALL",
    "{{ '<｜tool▁call▁begin｜>' + c.type + '<｜tool▁sep｜>' + c.function.name + '\\n```json\\n' }}"
    "{{- c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}"
    "{{- '\\n```<｜tool▁call▁end｜>' }}{%- if not loop.last -%}{{ '\\n' }}{%- endif -%}",
)
CHANNELS = (
    "{{ '<|start|>system<|message|>Valid channels: analysis, commentary, final.<|end|>' }}"
    "{%- if tools -%}{{ '<|start|>developer<|message|># Tools\\n\\nnamespace functions {\\n' }}"
    "{%- for tool in tools %}{{ '// ' + tool.function.description + '\\ntype ' + tool.function.name + '\\n' }}"
    "{% endfor -%}"
    "{{ '}<|end|>' }}{%- endif -%}{%- for m in messages -%}{%- if m.role == 'tool' -%}"
    "{{ '<|start|>functions to=assistant<|channel|>commentary<|message|>' + (m.content | tojson) + '<|end|>' }}"
    "{%- elif m.role == 'assistant' -%}{%- if m.thinking -%}"
    "{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{%- endif -%}"
    "{%- if m.tool_calls -%}{%- set f = m.tool_calls[0].function -%}"
    "{{ '<|start|>assistant to=functions.' + f.name + '<|channel|>commentary json<|message|>' }}"
    "{{- f.arguments | tojson }}{{- '<|call|>' }}{%- else -%}"
    "{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|return|>' }}{%- endif -%}"
    "{%- else -%}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|start|>assistant' }}{%- endif -%}"
)

# By the key of their calls in CALL_FORMATS.
FAMILIES = {
    "hermes": HERMES,
    "tagged": TAGGED,
    "llama": LLAMA,
    "mistral-list": MISTRAL_LIST,
    "mistral-ids": MISTRAL_IDS,
    "deepseek": DEEPSEEK,
    "deepseek-fenced": DEEPSEEK_FENCED,
    "channels": CHANNELS,
}
