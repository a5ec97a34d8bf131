// JSON that people type: where it breaks, and whether it can be a schema or a list of tools. The server has the last
// word; this finds slips before anything is sent.

const TYPES = ["string", "number", "integer", "boolean", "object", "array", "null"];

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** {value} of this JSON text, or {error} with its place. */
export function readJson(text) {
  try {
    return { value: JSON.parse(text) };
  } catch (error) {
    const ends = /end of (?:JSON|data)/.test(error.message);
    const at = ends ? text.length : /position (\d+)/.exec(error.message)?.[1];
    if (at === undefined) return { error: `No JSON: ${error.message}` };
    const before = text.slice(0, Number(at)).split("\n");
    const said = error.message.replace(/ in JSON at position.*| \(line.*/, "");
    return { error: `Line ${before.length}, column ${before.at(-1).length + 1}: ${said}` };
  }
}

/** What is wrong with a schema, with the place inside of it; null for nothing. */
function fault(schema, place, depth) {
  if (typeof schema === "boolean") return null;
  if (!isObject(schema)) return `${place} must be an object`;
  if (depth > 60) return `${place} is nested too deep`;
  const types = schema.type === undefined ? [] : [schema.type].flat();
  const wrong = types.find((type) => !TYPES.includes(type));
  if (wrong !== undefined) return `${place}.type: ${JSON.stringify(wrong)} is none of ${TYPES.join(", ")}`;
  if (schema.required !== undefined && !(Array.isArray(schema.required) && schema.required.every((name) => typeof name === "string")))
    return `${place}.required must be a list of names`;
  if (schema.enum !== undefined && !(Array.isArray(schema.enum) && schema.enum.length))
    return `${place}.enum must be a list that is not empty`;
  for (const key of ["properties", "$defs", "definitions"]) {
    if (schema[key] === undefined) continue;
    if (!isObject(schema[key])) return `${place}.${key} must be an object`;
    for (const [name, inner] of Object.entries(schema[key])) {
      const found = fault(inner, `${place}.${key}.${name}`, depth + 1);
      if (found) return found;
    }
  }
  for (const key of ["anyOf", "oneOf", "allOf"]) {
    if (schema[key] === undefined) continue;
    if (!Array.isArray(schema[key]) || !schema[key].length) return `${place}.${key} must be a list that is not empty`;
    for (const [index, inner] of schema[key].entries()) {
      const found = fault(inner, `${place}.${key}[${index}]`, depth + 1);
      if (found) return found;
    }
  }
  return schema.items === undefined || Array.isArray(schema.items) ? null : fault(schema.items, `${place}.items`, depth + 1);
}

/** {value} for `format`: undefined for an empty text, "json" for that word, else a schema; or {error}. */
export function readFormat(text) {
  const trimmed = text.trim();
  if (!trimmed) return { value: undefined };
  if (/^"?json"?$/i.test(trimmed)) return { value: "json" };
  const read = readJson(trimmed);
  if (read.error) return read;
  if (!isObject(read.value)) return { error: 'A schema is a JSON object, such as {"type": "object"}; or write json' };
  const found = fault(read.value, "schema", 0);
  return found ? { error: found } : read;
}

/** {value}: the tools in OpenAI's shape, undefined for none; or {error}. A bare function is wrapped. */
export function readTools(text) {
  if (!text.trim()) return { value: undefined };
  const read = readJson(text);
  if (read.error) return read;
  const tools = [];
  for (const [index, one] of [read.value].flat().entries()) {
    const described = isObject(one) && isObject(one.function) ? one.function : one;
    if (!isObject(described) || typeof described.name !== "string" || !described.name)
      return { error: `Tool ${index + 1} has no name. Expected {"name": ..., "description": ..., "parameters": {...}}` };
    const parameters = described.parameters ?? described.input_schema ?? { type: "object", properties: {} };
    const found = fault(parameters, `${described.name}.parameters`, 0);
    if (found) return { error: found };
    const { name, description } = described;
    tools.push({ type: "function", function: { name, ...(description ? { description } : {}), parameters } });
  }
  return { value: tools.length ? tools : undefined };
}
