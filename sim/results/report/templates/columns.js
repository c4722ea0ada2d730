// Facts and columns of numbers in a page; sim/results/report/columns.py packs them.

function json(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

async function unpacked(index, base64) {
  const bytes = Uint8Array.from(atob(base64), letter => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const content = new Uint8Array(await new Response(stream).arrayBuffer());
  const columns = {};
  let at = 0;
  for (const [name, [kind, count, rises]] of Object.entries(index)) {
    const width = Number(kind[1]), planes = content.subarray(at, at + count * width);
    const whole = new Uint8Array(count * width);
    for (let plane = 0; plane < width; plane++)
      for (let row = 0; row < count; row++) whole[row * width + plane] = planes[plane * count + row];
    const Kind = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array }[kind];
    const values = new Kind(whole.buffer);
    if (rises) for (let row = 1; row < count; row++) values[row] += values[row - 1];
    columns[name] = values;
    at += count * width;
  }
  return columns;
}
