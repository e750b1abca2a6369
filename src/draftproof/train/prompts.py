"""The prompts that ship with the project: what a target is asked when it writes its own training texts.

Training prompts are put together from tasks and topics, and from tasks on a text (a passage of the target's own, or a
piece of code); held-out prompts were written one by one and share no sentence with them. None is one of the twelve
prompts of the benchmarks.

Invariant: the same seed gives the same prompts in the same order.
Does not know: models, tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

TASKS = (
    "Explain {} to a beginner.", "What is {}?", "Why does {} matter?", "Give me five tips about {}.",
    "Write a short story about {}.", "Write a poem about {}.", "What are the advantages and disadvantages of {}?",
    "How do I get started with {}?", "Tell me something surprising about {}.", "Describe {} in a few sentences.",
    "What is the history of {}?", "How does {} work?", "List some common mistakes with {}.",
    "Compare {} with {}.", "What questions should I ask about {}?", "Write an email to a friend about {}.",
    "Write a speech about {} for a school class.", "Plan a week around {}.", "What would the world be like without {}?",
    "Can you recommend some books about {}?", "I am worried about {}. What can I do?", "Make a checklist for {}.",
    "Write a dialogue between two people who disagree about {}.", "Explain {} like I am five years old.",
    "What should I know about {} before I decide?", "Give me three ideas for a project on {}.",
    "How has {} changed over the last hundred years?", "What is the science behind {}?",
    "Write a product description for something related to {}.", "Summarize what is known about {}.",
    "What are the most important facts about {}?", "How can I teach my children about {}?",
    "Write an introduction for an essay about {}.", "What is the difference between {} and {}?",
    "Give step-by-step instructions for {}.", "Tell me a joke about {}.", "How would you describe {} to an alien?",
    "What skills do I need for {}?", "Write a letter of complaint about {}.", "What are some myths about {}?",
    "Suggest a title and an outline for an article about {}.", "How much does {} cost, and is it worth it?",
    "Write a review of {}.", "What does a typical day with {} look like?", "Who should avoid {}, and why?",
    "Help me prepare an interview about {}.", "What are the steps of {}?", "Is {} good for the environment?",
    "I know nothing about {}. Where should I begin?", "My friend asked me about {} and I had no answer. Help me.",
    "Can you tell me more about {}?", "What would you say to somebody who is afraid of {}?",
    "I have to give a talk on {} tomorrow. What should I say?", "Write a diary entry that mentions {}.",
    "Why do people care about {}?", "What do beginners get wrong about {}?", "Is there anything funny about {}?",
    "Write a news report about {}.", "Invent a superhero whose power has to do with {}.",
    "Who invented or discovered {}?", "How long does it take to learn about {}?",
    "Give me a quiz with five questions about {}, with answers.", "Write a limerick about {}.",
    "Could you explain {} in one paragraph?", "What are three surprising uses of {}?", "What are the risks of {}?",
    "Where in the world does {} matter most?",
    "Write a conversation about {} between a grandfather and his grandchild.", "I need a slogan about {}.",
    "What should I avoid when it comes to {}?", "Which words should I know to talk about {}?",
    "Give me an analogy that explains {}.", "My teacher wants an essay about {}. Can you write an outline?",
    "What is a good way to remember the basics of {}?", "Write a fairy tale in which {} plays a role.",
    "What do {} and {} have in common?", "Can {} be dangerous?", "Please write a short encyclopedia entry on {}.",
    "What would happen if everyone started to think about {}?", "Do you have any advice on {}?",
    "What is your opinion on {}?", "Tell me a true story about {}.", "Explain step by step how to deal with {}.",
    "Write a text message to my sister about {}.", "Name ten words that have to do with {}.", "How do experts see {}?",
    "Write a motivational quote about {}.", "Which came first, {} or {}?", "How can I save time or money with {}?",
    "What are the different kinds of {}?", "Please correct me if I am wrong about this: {} is simple.",
    "Write a job advertisement for an expert on {}.", "What does science say about {}?", "Describe a photograph of {}.",
    "Write a scene from a film about {}.", "I'm writing a report on {}. Give me the key facts.",
    "Make a table about {} with two columns.", "Hi! Can we talk about {}?",
    "I've always wondered about {}. Enlighten me.", "How would you teach {} in one hour?",
)  # fmt: skip
TOPICS = (
    "photosynthesis", "the Roman Empire", "learning to play the guitar", "electric cars", "baking bread",
    "the French Revolution", "machine learning", "growing tomatoes", "climate change", "black holes",
    "the human heart", "running a marathon", "public speaking", "chess", "the water cycle", "meditation",
    "renewable energy", "the Great Wall of China", "volcanoes", "time management", "saving money", "vaccines",
    "plate tectonics", "writing a resume", "the solar system", "coffee", "dinosaurs", "photography", "DNA",
    "the stock market", "beekeeping", "the moon landing", "sleep", "recycling", "whales", "origami",
    "moving to another city", "learning a new language", "the internet", "gravity", "a healthy breakfast", "jazz",
    "the Industrial Revolution", "swimming", "artificial intelligence", "the Amazon rainforest", "stress at work",
    "keeping a diary", "bicycles", "the brain", "antibiotics", "painting with watercolors", "earthquakes", "yoga",
    "ancient Egypt", "a job interview", "cats", "the immune system", "camping in the mountains", "democracy",
    "making friends", "the periodic table", "solar panels", "cooking pasta", "bridges", "the Olympics", "migraines",
    "the Silk Road", "composting", "airplanes", "budgeting for a family", "shyness", "magnets", "the Renaissance",
    "online shopping", "dreams", "knitting", "wind turbines", "the ocean", "a vegetarian diet", "genetics",
    "homework", "tea", "rainbows", "small talk", "the printing press", "hiking with children", "allergies",
    "robots", "Shakespeare", "a messy desk", "the speed of light", "penguins", "gardening on a balcony", "memory",
    "tides", "the Vikings", "back pain", "board games", "honey", "quantum mechanics", "fire safety", "folk music",
    "an aquarium", "the Sahara desert", "email", "inflation", "clouds", "a first apartment", "sharks", "calculus",
    "soap", "the piano", "the Cold War", "procrastination", "lightning", "chocolate", "graphic design", "ants",
    "learning to drive", "a birthday party", "snow", "statistics", "tourism", "the Mayan civilization", "salt",
    "weight lifting", "houseplants", "open source software", "maps", "a family reunion", "owls", "the Moon",
    "creative writing", "electricity", "a long flight", "cheese", "teamwork", "fossils", "mushrooms", "insurance",
    "the skeleton", "a thunderstorm", "libraries", "traffic jams", "the violin", "rice", "loneliness", "spiders",
    "a science fair", "glaciers", "databases", "laughter", "the Eiffel Tower", "apples", "good posture", "comets",
    "Isaac Newton", "the Library of Alexandria", "a broken dishwasher", "Beethoven", "the Panama Canal", "pottery",
    "a lost passport", "the Great Depression", "sourcing wood for a table", "Nelson Mandela", "the Black Death",
    "fermented vegetables", "a difficult boss", "the Northern Lights", "Leonardo da Vinci", "tap water", "karate",
    "an old laptop", "the Suez Canal", "a wedding on a small budget", "sign language", "the Berlin Wall", "vinegar",
    "Albert Einstein", "freelance work", "coral reefs", "a leaking roof", "the Aztecs", "ballet", "the common cold",
    "Cleopatra", "rain barrels", "the human eye", "crossword puzzles", "food labels", "Charles Darwin", "elevators",
    "a new puppy", "the Himalayas", "garlic", "tax returns", "the Black Sea", "hot air balloons", "Frida Kahlo",
    "sunscreen", "rock climbing", "the Magna Carta", "microwaves", "a noisy refrigerator", "the Nile", "kites",
    "color blindness", "a blog about travel", "Mahatma Gandhi", "earthworms", "the Hubble telescope", "pizza dough",
    "jet lag", "the Spanish language", "a garage sale", "giraffes", "batteries", "Roman roads", "public transport",
    "the liver", "a school play", "cryptography", "the Arctic", "potatoes", "podcasting", "the Wright brothers",
    "a rainy weekend", "asthma", "wool", "Japan", "drones", "the Trojan War", "strawberries", "a power outage",
    "the electoral college", "lactose intolerance", "bats", "stained glass", "a long commute", "the Beatles",
    "submarines", "a toddler who will not sleep", "paper airplanes", "Antarctica", "diabetes", "the guitar solo",
    "parallel parking", "the violin family", "woodworking", "Joan of Arc", "chemical bonds", "a flooded basement",
    "the Grand Canyon", "lemons", "nuclear fusion", "a surprise visit from relatives", "hedgehogs", "sailing",
    "the Ottoman Empire", "contact lenses", "a credit score", "Mount Everest", "eggs", "blockchain", "sunflowers",
    "the digestive system", "a car accident", "Vincent van Gogh", "haircuts at home", "the Great Fire of London",
    "moths in the closet", "badminton", "hydrogen", "Brazil", "a community garden", "high blood pressure", "frogs",
    "virtual reality", "the Colosseum", "onions", "a speech for a wedding", "the Pacific Ocean", "juggling",
    "spreadsheets", "Galileo", "a missing package", "ice cream", "the nervous system", "typewriters", "Ireland",
    "a stolen bicycle", "nutrition for athletes", "desert plants", "the Statue of Liberty", "a vegetable soup",
    "3D printing", "the Gold Rush", "bees and flowers", "an argument with a sibling", "the metric system", "bamboo",
    "Abraham Lincoln", "smartphone addiction", "caves", "a sore throat", "surfing", "the Mongol Empire", "yogurt",
    "the ozone layer", "bullying", "elephants", "woodwind instruments", "a moving company", "Iceland", "triathlons",
    "sewing machines", "the Milky Way", "bananas", "a class reunion", "binary numbers", "fear of heights", "turtles",
    "the Treaty of Versailles", "a hotel booking", "peanut butter", "radio waves", "Greek mythology", "worms",
    "car insurance", "wildfires", "the Mona Lisa", "a bad haircut", "table tennis", "acids and bases", "Kenya",
    "a science museum", "the thyroid", "candles", "minimalism", "the Boston Tea Party", "carrots", "GPS", "squats",
    "foxes in the city", "opera", "a baby shower", "Thomas Edison", "the equator", "a sticky keyboard", "lentils",
    "volunteer work", "the circulatory system", "magicians", "New Zealand", "retirement plans", "seahorses", "rust",
    "the French language", "a picnic", "probability", "gluten", "Rosa Parks", "a wobbly chair", "zinc",
    "marathons of old movies", "the stomach", "tulips", "India", "an internship", "crocodiles", "pencils", "vertigo",
    "the Apollo program", "a camping stove", "fractions", "the flu", "castles", "Amelia Earhart", "mosquito bites",
    "a coffee machine", "cricket", "oxygen", "Mexico City", "a fundraiser", "anxiety before exams", "wolves", "mirrors",
    "the Hundred Years' War", "pumpkins", "cloud computing", "stretching", "the opera house in Sydney", "goldfish",
    "a letter to the editor", "Martin Luther King", "deserts", "a clogged drain", "olive oil", "geometry", "the spine",
    "burnout", "falcons", "perfume", "Peru", "a resignation letter", "vitamin D", "carpets", "stop-motion films",
    "the stone age", "cucumbers", "passwords", "balance", "subways", "a jealous friend", "Picasso", "the north star",
    "a job abroad", "quicksand", "cinnamon", "angles", "the lungs", "hiccups", "dolphins", "concrete", "Vietnam",
    "a second-hand car", "iron deficiency", "bookshelves", "street art", "the Code of Hammurabi", "spinach", "spam",
    "push-ups", "canals", "an unfair grade", "Mozart", "the Mars rovers", "a cracked phone screen", "avalanches",
    "mustard", "negative numbers", "the kidneys", "boredom", "parrots", "glass", "Egypt today", "a trade union",
    "cholesterol", "curtains", "animated films", "the Bronze Age", "peas", "search engines", "ice skating", "ferries",
    "a broken promise", "Jane Austen", "eclipses", "a dead car battery", "tornadoes", "maple syrup", "prime numbers",
    "the ear", "homesickness", "octopuses", "plastic", "Norway", "a city council", "hay fever", "lamps", "comic books",
    "the Phoenicians", "cabbage", "video calls", "handstands", "trams", "an awkward silence", "Mark Twain", "asteroids",
    "a squeaky door", "droughts", "blueberries", "square roots", "teeth", "self-confidence", "camels", "steel", "Chile",
    "a small claims court", "dehydration", "kitchen knives", "documentaries", "the Incas", "corn", "firewalls", "judo",
)  # fmt: skip
ON_TEXTS = (
    "{}\n\nSummarize the text above.", "Summarize this in two sentences:\n\n{}", "{}\n\nWhat is the main idea?",
    "Rewrite the following text in simpler words.\n\n{}", "{}\n\nList the key points of this text.",
    "Correct any mistakes in this text and print it again:\n\n{}", "{}\n\nWrite a title for this text.",
    "Turn the following text into bullet points.\n\n{}", "{}\n\nAsk three questions about the text.",
    "Rewrite the following text in the past tense:\n\n{}", "Repeat this text exactly:\n\n{}",
    "{}\n\nQuote the most important sentence of the text.", "Continue this text:\n\n{}",
    "Make the following text more formal.\n\n{}", "{}\n\nExplain the text to a child.",
)  # fmt: skip
ON_CODE = (
    "Explain what this code does:\n```python\n{}\n```", "Add comments to this code:\n```python\n{}\n```",
    "Rename the variables in this code to clearer names and print it:\n```python\n{}\n```",
    "Print this code again with type hints:\n```python\n{}\n```", "Find the bug in this code:\n```python\n{}\n```",
    "Repeat this code without changes:\n```python\n{}\n```", "Write a test for this code:\n```python\n{}\n```",
)  # fmt: skip
CODE_TASKS = (
    "Write a Python function that {}.", "Write a Python class that {}.", "Show me Python code that {}.",
)  # fmt: skip
CODE_TOPICS = (
    "reverses a string", "sorts a list of numbers", "counts the words in a text", "checks if a number is prime",
    "reads a CSV file", "computes the Fibonacci numbers", "finds the largest item of a list", "stores a shopping list",
    "converts Celsius to Fahrenheit", "models a bank account",
    "removes duplicates from a list", "plays rock, paper, scissors",
    "merges two dictionaries", "validates an email address", "computes the mean and the median",
    "represents a library of books",
    "generates a random password", "finds all anagrams in a list",
    "represents a stack", "parses a date",
)  # fmt: skip
HELD_OUT = (
    "How can I stop my neighbor's music from keeping me awake?",
    "My grandmother's recipe asks for a pinch of saffron. What could I use instead?",
    "Invent a holiday that celebrates lost umbrellas and tell me how people spend it.",
    "What happens inside a car engine when I turn the key?",
    "I have forty minutes between two trains in a town I don't know. What should I do?",
    "Who was Marie Curie and what did she discover?",
    "Write four lines for a card to a colleague who retires.",
    "Why do some people remember names easily while others never do?",
    "Could you help me understand what a mortgage is?",
    "Describe a market in a small harbor town early in the morning.",
    "My sourdough starter smells like paint thinner. Is it dead?",
    "What are good ways to cool a room without air conditioning?",
    "Pretend you are a tour guide on Mars. Greet your group.",
    "Which exercises can I do at my desk when my shoulders hurt?",
    "How do noise-cancelling headphones know what to cancel?",
    "What is the point of leap years?",
    "Give me arguments for and against school uniforms.",
    "I'd like to write a novel, but I never get past the first page. Any advice?",
    "What makes a bicycle stay upright when it moves?",
    "Tell me about a day in the life of a medieval baker.",
    "How should I apologize to a friend whose birthday I forgot?",
    "Explain the offside rule in soccer to somebody who has never seen a match.",
    "What is the difference between a virus and a bacterium?",
    "Suggest names for a bookstore that also sells plants.",
    "How do I keep squirrels away from a bird feeder?",
    "Why does bread go stale, and can I do anything about it?",
    "Write a bedtime story in which a broken clock saves the day.",
    "What should be in a first-aid kit for a weekend on a boat?",
    "How did people tell the time before clocks were invented?",
    "I get nervous when I have to make phone calls. What helps?",
    "What is a haiku? Please give an example.",
    "Is it better to pay off debts first or to save first?",
)  # fmt: skip


def assembled(seed: int, count: int) -> list[str]:
    """Training prompts from tasks and topics, one in ten about code; no two are equal."""
    rng, found = np.random.default_rng([seed, 1]), dict[str, None]()
    for _ in range(50 * count):
        if len(found) == count:
            break
        tasks, topics = (CODE_TASKS, CODE_TOPICS) if rng.random() < 0.1 else (TASKS, TOPICS)
        task = tasks[int(rng.integers(len(tasks)))]
        chosen = rng.choice(len(topics), 2, replace=False).tolist()
        found[task.format(*(topics[i] for i in chosen[: task.count("{}")]))] = None
    return list(found)


def about(texts: Sequence[str], seed: int) -> Iterator[str]:
    """A task on each text: on code where it holds a fenced block of it, else on its first sentences."""
    rng = np.random.default_rng([seed, 2])
    for text in texts:
        code = _fenced(text)
        tasks, part = (ON_CODE, code) if code else (ON_TEXTS, _whole_sentences(text, int(rng.integers(200, 900))))
        yield tasks[int(rng.integers(len(tasks)))].format(part)


def _fenced(text: str) -> str | None:
    parts = text.split("```")
    if len(parts) < 3:
        return None
    code = parts[1].partition("\n")[2].rstrip()
    return code or None


def _whole_sentences(text: str, most: int) -> str:
    part = text[:most]
    return part[: part.rfind(". ") + 1] or part
