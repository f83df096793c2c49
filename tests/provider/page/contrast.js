// The lowest contrast of a text that is shown, as WCAG 2 defines it, and that text.
(() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const pen = canvas.getContext("2d", { willReadFrequently: true });

  function paint(color) {
    pen.fillStyle = color;
    pen.fillRect(0, 0, 1, 1);
  }

  // What is drawn for colours above each other, the lowest first.
  function seen(colors) {
    pen.clearRect(0, 0, 1, 1);
    colors.forEach(paint);
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3);
  }

  function luminance(rgb) {
    const [r, g, b] = rgb.map((each) => each / 255).map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }

  function backgrounds(element) {
    const found = [];
    for (let each = element; each; each = each.parentElement) found.unshift(getComputedStyle(each).backgroundColor);
    return found;
  }

  let worst = [21, ""];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility() || element.closest("script, option, noscript")) continue;
    const style = getComputedStyle(element);
    const behind = backgrounds(element);
    const color = element instanceof SVGElement ? style.fill : style.color;
    const [light, dark] = [luminance(seen(behind)), luminance(seen([...behind, color]))].sort((a, b) => b - a);
    const contrast = (light + 0.05) / (dark + 0.05);
    if (contrast < worst[0]) worst = [contrast, texts.currentNode.data.trim()];
  }
  return worst;
})();
