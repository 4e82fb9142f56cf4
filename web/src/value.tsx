import { Copy } from "./copy";

const ROWS = 50;
const COLUMNS = 10;
const CELL_CHARS = 200;

/** A value as a table if it is a list of objects, else as JSON or as the text that it is; with a button that copies all of it. */
export function Value({ value, label }: { value: unknown; label: string }) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  const records = recordsOf(value);
  return (
    <div className="listing">
      {records ? (
        <Records records={records} rest={records.length < (value as unknown[]).length ? String((value as unknown[]).at(-1)) : ""} label={label} />
      ) : (
        <pre className="value" tabIndex={0} role="group" aria-label={label}>
          {text}
        </pre>
      )}
      <div className="tools">
        <Copy text={text} label={`Copy ${label.toLowerCase()}`} />
      </div>
    </div>
  );
}

type Member = Record<string, unknown>;

/** The objects of a list that has nothing else, but for the text by which the server ends a list that it shortened. */
function recordsOf(value: unknown): Member[] | undefined {
  if (!Array.isArray(value)) return undefined;
  const records = typeof value.at(-1) === "string" ? value.slice(0, -1) : value;
  const isTable = records.every((each) => typeof each === "object" && each !== null && !Array.isArray(each));
  return isTable && records.some((each) => Object.keys(each).length > 0) ? records : undefined;
}

function Records({ records, rest, label }: { records: Member[]; rest: string; label: string }) {
  const rows = records.slice(0, ROWS);
  const names = [...new Set(rows.flatMap(Object.keys))];
  const columns = names.slice(0, COLUMNS).map((name) => {
    const isNumber = rows.every((each) => typeof (each[name] ?? 0) === "number");
    return { name, kind: isNumber ? "number" : undefined };
  });
  const left = [
    records.length > ROWS && `${ROWS} of ${records.length} rows`,
    names.length > COLUMNS && `${COLUMNS} of ${names.length} columns`,
    rest,
  ].filter(Boolean);
  return (
    <>
      <div className="table" role="group" aria-label={label} tabIndex={0}>
        <table>
          <thead>
            <tr>
              {columns.map(({ name, kind }) => (
                <th key={name} scope="col" className={kind}>
                  {cut(name, CELL_CHARS)}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row, place) => (
              <tr key={place}>
                {columns.map(({ name, kind }) => (
                  <td key={name} className={kind}>
                    {typeof row[name] === "string" ? cut(row[name], CELL_CHARS) : brief(row[name] ?? undefined, CELL_CHARS)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {left.length > 0 && <p className="note">{left.join(", ")}</p>}
    </>
  );
}

const cut = (text: string, most: number) => (text.length > most ? `${text.slice(0, most)}…` : text);

/** JSON on one line, shortened; nothing for undefined. */
export const brief = (value: unknown, most: number) => cut(JSON.stringify(value) ?? "", most);
