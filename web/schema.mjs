// TypeScript types of what the API answers, made from the OpenAPI file that the daemon serves.

import { readFile } from "node:fs/promises";

const file = new URL("../node/src/http/openapi.json", import.meta.url);

const isUnion = ({ oneOf, allOf, enum: words, type }) => oneOf || allOf || words || Array.isArray(type);

/** The type of a schema, its lines indented as they lie in one that is so deep. */
function typeOf(schema, depth) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.oneOf) return schema.oneOf.map((one) => typeOf(one, depth)).join(" | ");
  if (schema.allOf) return schema.allOf.map((one) => typeOf(one, depth)).join(" & ");
  if (schema.enum) return schema.enum.map((word) => JSON.stringify(word)).join(" | ");
  const kinds = [schema.type].flat().map((kind) => {
    switch (kind) {
      case "integer":
        return "number";
      case "array":
        return isUnion(schema.items) ? `(${typeOf(schema.items, depth)})[]` : `${typeOf(schema.items, depth)}[]`;
      case "object":
        return objectType(schema, depth);
      case undefined:
        return "unknown";
      default:
        return kind;
    }
  });
  return kinds.join(" | ");
}

function objectType(schema, depth) {
  if (!schema.properties) return `Record<string, ${typeOf(schema.additionalProperties ?? {}, depth)}>`;
  const inner = "  ".repeat(depth + 1);
  const required = new Set(schema.required);
  const lines = Object.entries(schema.properties).map(([name, part]) => {
    const said = part.description ? `${inner}/** ${part.description.replaceAll("*/", "* /")} */\n` : "";
    return `${said}${inner}${name}${required.has(name) ? "" : "?"}: ${typeOf(part, depth + 1)};\n`;
  });
  return `{\n${lines.join("")}${"  ".repeat(depth)}}`;
}

/** The text of src/schema.ts. */
export async function schemaText() {
  const { components } = JSON.parse(await readFile(file, "utf8"));
  const types = Object.entries(components.schemas).map(([name, schema]) => {
    const said = schema.description ? `/** ${schema.description} */\n` : "";
    return `${said}export type ${name} = ${typeOf(schema, 0)};\n`;
  });
  return `// Made from node/src/http/openapi.json by \`npm run build\`: change that.\n\n${types.join("\n")}`;
}
