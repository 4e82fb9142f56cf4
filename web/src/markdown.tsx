import { memo, type ReactNode } from "react";
import { Code } from "./code";

/** Markdown as elements: paragraphs, headings, lists, tables, quotes, code, emphasis. There is no HTML, and no link. */
export const Markdown = memo(function Markdown({ text }: { text: string }) {
  return <div className="text">{blocks(text.split("\n"), 0)}</div>;
});

const DEEPEST = 6;
const FENCE = /^ {0,3}(```+|~~~+) *([\w+#.-]*)/;
const HEADING = /^ {0,3}(#{1,6}) +(.*)/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)]) +(.*)/;
const LANGUAGES: Record<string, "typescript" | "python"> = {
  javascript: "typescript",
  js: "typescript",
  py: "python",
  python: "python",
  ts: "typescript",
  typescript: "typescript",
};

function blocks(lines: string[], depth: number): ReactNode[] {
  const made: ReactNode[] = [];
  let at = 0;
  const take = (goes: (line: string) => boolean) => {
    const from = at;
    while (at < lines.length && goes(lines[at]!)) at += 1;
    return lines.slice(from, at);
  };
  while (at < lines.length) {
    const line = lines[at]!;
    const key = at;
    const fence = line.match(FENCE);
    const heading = line.match(HEADING);
    if (!line.trim()) {
      at += 1;
    } else if (fence) {
      at += 1;
      const code = take((each) => !each.trimStart().startsWith(fence[1]!)).join("\n");
      at += 1;
      made.push(<Code key={key} code={code} language={LANGUAGES[fence[2]!.toLowerCase()]} label="Code" bare />);
    } else if (heading) {
      const Level = heading[1]!.length === 1 ? "h3" : "h4";
      made.push(<Level key={key}>{inline(heading[2]!)}</Level>);
      at += 1;
    } else if (isRule(line)) {
      made.push(<hr key={key} />);
      at += 1;
    } else if (isTable(line, lines[at + 1])) {
      made.push(<Table key={key} rows={take((each) => each.includes("|"))} />);
    } else if (depth < DEEPEST && line.startsWith(">")) {
      const inside = take((each) => each.startsWith(">")).map((each) => each.replace(/^> ?/, ""));
      made.push(<blockquote key={key}>{blocks(inside, depth + 1)}</blockquote>);
    } else if (depth < DEEPEST && ITEM.test(line)) {
      const indent = line.search(/\S/);
      const inside = take((each) => !each.trim() || each.search(/\S/) > indent || sameList(line, each));
      made.push(<List key={key} lines={inside} depth={depth} />);
    } else {
      const first = lines[at]!;
      at += 1;
      const rest = take((each) => each.trim() !== "" && !begins(each, depth));
      made.push(<p key={key}>{inline([first, ...rest].join("\n").trim())}</p>);
    }
  }
  return made;
}

const begins = (line: string, depth: number) =>
  FENCE.test(line) || HEADING.test(line) || (depth < DEEPEST && (line.startsWith(">") || ITEM.test(line)));

const isRule = (line: string) => /^([-*_])\1{2,}$/.test(line.replaceAll(" ", ""));

const isNumbered = (line: string) => /^ *\d/.test(line);

const sameList = (first: string, line: string) =>
  ITEM.test(line) && line.search(/\S/) === first.search(/\S/) && isNumbered(line) === isNumbered(first);

const cells = (row: string) => row.trim().replace(/^\|/, "").replace(/\|$/, "").split("|");

const isTable = (line: string, next: string | undefined) =>
  line.includes("|") && !!next?.includes("|") && cells(next).every((cell) => /^:?-+:?$/.test(cell.trim()));

function Table({ rows: [head, rule, ...rows] }: { rows: string[] }) {
  const numeric = cells(rule!).map((cell) => (cell.trim().endsWith(":") ? "number" : undefined));
  return (
    <div className="table" role="group" aria-label="Table" tabIndex={0}>
      <table>
        <thead>
          <tr>
            {cells(head!).map((cell, index) => (
              <th key={index} scope="col" className={numeric[index]}>
                {inline(cell.trim())}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, place) => (
            <tr key={place}>
              {cells(row).map((cell, index) => (
                <td key={index} className={numeric[index]}>
                  {inline(cell.trim())}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function List({ lines, depth }: { lines: string[]; depth: number }) {
  const indent = lines[0]!.search(/\S/);
  const items: string[][] = [];
  for (const line of lines) {
    const item = line.match(ITEM);
    if (item && item[1]!.length === indent) items.push([item[3]!]);
    else items.at(-1)!.push(line);
  }
  const inside = items.map((item, index) => <li key={index}>{blocks(unindented(item), depth + 1)}</li>);
  if (!isNumbered(lines[0]!)) return <ul>{inside}</ul>;
  return <ol start={parseInt(lines[0]!.trim(), 10)}>{inside}</ol>;
}

/** The lines after the first without the indentation that they share. */
function unindented([first, ...rest]: string[]): string[] {
  const shared = Math.min(...rest.filter((line) => line.trim()).map((line) => line.search(/\S/)));
  return [first!, ...rest.map((line) => line.slice(Number.isFinite(shared) ? shared : 0))];
}

const EMPHASIS =
  /(`[^`\n]+`|\*\*[^*\n]+\*\*|~~[^~\n]+~~|(?<![\w*])\*[^*\s](?:[^*\n]*[^*\s])?\*(?![\w*])|(?<!\w)_[^_\s](?:[^_\n]*[^_\s])?_(?!\w))/;

function inline(text: string): ReactNode[] {
  return text.split(EMPHASIS).map((part, index) => {
    if (index % 2 === 0) return part;
    if (part.startsWith("`")) return <code key={index}>{part.slice(1, -1)}</code>;
    if (part.startsWith("**")) return <b key={index}>{inline(part.slice(2, -2))}</b>;
    if (part.startsWith("~~")) return <s key={index}>{inline(part.slice(2, -2))}</s>;
    return <em key={index}>{part.slice(1, -1)}</em>;
  });
}
