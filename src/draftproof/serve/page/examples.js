// Prompts to begin with: an answer that is mostly a copy, one that quotes, one that talks freely. They show the range.

const FILE = `class Basket:
    def __init__(self):
        self.fruit = {}

    def add(self, name, count):
        self.fruit[name] = self.fruit.get(name, 0) + count

    def take(self, name, count):
        if self.fruit.get(name, 0) < count:
            raise ValueError("not enough fruit")
        self.fruit[name] -= count
`;
const PASSAGE = `The paper mill on the lower river was founded in 1832 by two brothers who had learned the trade in the \
south. At first it made paper from rags; from 1869 on it ground spruce wood, which was cheaper and never ran short. \
A flood in 1903 carried off the old wheel house, and the owners put in two turbines in its place. \
The mill closed in 1981. Since 1994 its drying hall has been a library with 40,000 books.`;

export const EXAMPLES = {
  Edit: `Print this file again and then add a method called names:\n\`\`\`python\n${FILE}\`\`\``,
  Quote: `${PASSAGE}\n\nQuote every sentence of the passage above that contains a year.`,
  Talk: "What should I pack for three days of walking in the mountains, and why?",
};
