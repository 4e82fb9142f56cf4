const PATHS = {
  check: "M3 8.5 6.2 11.7 13 4.8",
  chevron: "M6 3.5 10.5 8 6 12.5",
  close: "M4 4 12 12M12 4 4 12",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  down: "M8 3v10M4 9l4 4 4-4",
  edit: "M3 13l.7-3 7.1-7.1 2.3 2.3L6 12.3zM9.3 4.4l2.3 2.3",
  open: "M9 3h4v4M13 3 7.5 8.5M11 9.5V13H3V5h3.5",
  plus: "M8 3v10M3 8h10",
  retry: "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3",
  back: "M10.5 3.5 6 8l4.5 4.5",
};

/** A drawing of 16 by 16. It has no name: the control that holds it has one. */
export function Icon({ name }: { name: keyof typeof PATHS }) {
  return (
    <svg className={`icon ${name}`} viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
