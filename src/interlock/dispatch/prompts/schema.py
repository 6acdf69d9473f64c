"""The instruction that asks for JSON of a schema, for engines that cannot enforce one themselves.

Guarantee: the prompt itself stands first, byte for byte; what is added says where it begins.
"""

from __future__ import annotations

from typing import Final

_INSTRUCTION: Final = """

---
Answer with one JSON value that fits the JSON Schema below, and with nothing else: no explanation, no code fence.

```json
{schema}
```
"""


def with_schema(prompt: str, schema_json: str) -> str:
    """Return the prompt with the instruction after it."""
    return prompt + _INSTRUCTION.replace("{schema}", schema_json)
